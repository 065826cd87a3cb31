"""Beam search over CTC with an n-gram language model, by flashlight-text.

The score of a hypothesis y is, in natural logarithms,

    log p_ctc(y) + lm_weight log p_lm(y) + word_score words(y)

where p_ctc sums the alignments that the beam kept. Over a language model of
words the search is bound to the words of that model: a lexicon spells each in
the tokenizer's pieces. Over one of pieces, or none, any word can come out;
there the word score can only reorder what the search found.
"""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from mala_asr.decoding.flashlight import flashlight, load_kenlm
from mala_asr.decoding.hypothesis import Hypothesis, spell
from mala_asr.decoding.language_model import (
    LanguageModel,
    find_language_model,
    spellings,
)
from mala_asr.decoding.options import NO_LM

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

    from mala_asr.models import MalaASR

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's

# KenLM has logarithms to base 10.
_LN10 = math.log(10.0)

# In place of log 0, whose sums and differences would be no numbers.
_NEVER = -1e4


class CTCBeamSearch:
    """Beam search over CTC, with or without an n-gram language model.

    Arguments
    ---------
    model : MalaASR
        The model, in evaluation mode.
    tokenizer : SentencePieceProcessor
        Its tokenizer; the pad is the CTC blank.
    beam_size : int
        Hypotheses kept at each frame.
    token_beam : int
        Tokens tried at each frame, the best ones.
    beam_threshold : float
        Hypotheses this much worse than the best are dropped.
    word_score : float
        Added for each word.
    lm : str
        A language model's file, or ``none``.
    lm_weight : float
        Of its log-probability.

    Raises
    ------
    DecodingError
        When a library is missing, or the language model cannot be used with
        the tokenizer.
    """

    def __init__(
        self,
        model: MalaASR,
        tokenizer: SentencePieceProcessor,
        beam_size: int,
        token_beam: int,
        beam_threshold: float,
        word_score: float,
        lm: str = NO_LM,
        lm_weight: float = 0.0,
    ) -> None:
        text = flashlight()
        self.model = model
        self.tokenizer = tokenizer
        self.word_score = word_score
        self.lm_weight = lm_weight
        self.blank = tokenizer.pad_id()
        lm_file = None if lm == NO_LM else find_language_model(lm, tokenizer)
        size = tokenizer.get_piece_size()
        shared = {
            "beam_size": beam_size,
            "beam_size_token": min(token_beam, size),
            "beam_threshold": beam_threshold,
            "lm_weight": lm_weight * _LN10,
            "sil_score": 0.0,
            "log_add": True,
            "criterion_type": text.CriterionType.CTC,
        }
        self.lexicon = None
        if lm_file is not None and lm_file.unit == "word":
            self.lexicon = _build_lexicon(lm_file, tokenizer)
            self.decoder = text.LexiconDecoder(
                text.LexiconDecoderOptions(
                    word_score=word_score, unk_score=-math.inf, **shared
                ),
                self.lexicon.trie,
                self.lexicon.lm,
                self.lexicon.silence,
                self.blank,
                -1,
                [],
                False,
            )
        else:
            # flashlight puts "silence" before the first frame, and a token
            # like the one before it is no new one: hence the blank.
            silence = self.blank
            self.decoder = text.LexiconFreeDecoder(
                text.LexiconFreeDecoderOptions(**shared),
                text.ZeroLM()
                if lm_file is None
                else load_kenlm(
                    lm_file.path, map(tokenizer.id_to_piece, range(size))
                ),
                silence,
                self.blank,
                [],
            )
        self.has_lm = lm_file is not None

    @torch.no_grad()
    def __call__(
        self, enc: torch.Tensor, lengths: torch.Tensor
    ) -> list[Hypothesis]:
        """Search the best transcript of each utterance.

        Arguments
        ---------
        enc : torch.Tensor
            Encoder output, (batch, frames, d_model).
        lengths : torch.Tensor
            Valid frames of each utterance, (batch,).

        Returns
        -------
        list[Hypothesis]
            One per utterance, in order.
        """
        return [best for (best,) in self.n_best(enc, lengths, count=1)]

    @torch.no_grad()
    def n_best(
        self, enc: torch.Tensor, lengths: torch.Tensor, count: int
    ) -> list[list[Hypothesis]]:
        """Search the best transcripts of each utterance.

        Arguments
        ---------
        enc : torch.Tensor
            Encoder output, (batch, frames, d_model).
        lengths : torch.Tensor
            Valid frames of each utterance, (batch,).
        count : int
            How many at most.

        Returns
        -------
        list[list[Hypothesis]]
            One or more per utterance, of different texts, the best first;
            ``scores`` holds ``ctc`` and, where there is a language model,
            ``lm``.
        """
        log_probs = self.model.ctc_log_probs(enc).cpu()
        frames = (lengths * self.model.ctc_upsampling).tolist()
        return [
            self._search(row[:length])[:count]
            for row, length in zip(log_probs, frames, strict=True)
        ]

    def _search(self, log_probs: torch.Tensor) -> list[Hypothesis]:
        emissions = log_probs.clamp(min=_NEVER)
        if self.lexicon is not None and self.lexicon.word_end is not None:
            # A word ends by the space after it, which the last word lacks.
            end = torch.full_like(log_probs[:1], _NEVER)
            end[:, self.lexicon.word_end] = 0.0
            emissions = torch.cat((emissions, end))
        emissions = emissions.contiguous()
        results = self.decoder.decode(emissions.data_ptr(), *emissions.shape)
        found: dict[str, Hypothesis] = {}
        for result in results:
            hypothesis = self._hypothesis(result)
            known = found.get(hypothesis.text)
            if known is None or known.score < hypothesis.score:
                found[hypothesis.text] = hypothesis
        return sorted(found.values(), key=lambda h: h.score, reverse=True)

    def _hypothesis(self, result: Any) -> Hypothesis:
        if self.lexicon is None:
            # A token before the first frame and one after the last are the
            # decoder's own.
            path = [token for token, _ in groupby(result.tokens[1:-1])]
            tokens = [token for token in path if token != self.blank]
            text = spell(tokens, self.tokenizer)
            ctc = result.score
            score = result.score + self.word_score * len(text.split())
        else:
            words = [self.lexicon.words[w] for w in result.words if w >= 0]
            text = " ".join(words)
            tokens = self.tokenizer.encode(text)
            score = result.score
            ctc = result.score - self.word_score * len(words)
        scores = {"ctc": ctc}
        if self.has_lm:
            scores["lm"] = result.lmScore * _LN10
            scores["ctc"] -= self.lm_weight * scores["lm"]
        return Hypothesis(text, tokens, score, scores)


class _Lexicon(NamedTuple):
    """The words of a language model as a tree of pieces."""

    trie: Any
    lm: Any
    words: list[str]
    silence: int  # may stand between words
    word_end: int | None  # the piece that ends a word, if there is one


def _build_lexicon(
    lm_file: LanguageModel, tokenizer: SentencePieceProcessor
) -> _Lexicon:
    text = flashlight()
    spelled = spellings(lm_file.vocabulary, tokenizer)
    words = list(spelled)
    lm = load_kenlm(lm_file.path, words)
    blank, space = tokenizer.pad_id(), tokenizer.piece_to_id(_SPACE)
    # Where every word starts with a piece that is the space alone, as with
    # letters, that piece is put at the end of words: flashlight lets a word's
    # last piece last for one frame only, unless it is this "silence".
    separated = all(ids[0] == space for ids in spelled.values())
    silence = space if separated else blank
    trie = text.Trie(tokenizer.get_piece_size(), silence)
    start = lm.start(False)
    for index, ids in enumerate(spelled.values()):
        _, score = lm.score(start, index)
        trie.insert([*ids[1:], space] if separated else ids, index, score)
    trie.smear(text.SmearingMode.MAX)
    return _Lexicon(trie, lm, words, silence, space if separated else None)
