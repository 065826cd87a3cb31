"""Beam search by the attention decoder and CTC together.

The search is SpeechBrain's (``S2STransformerBeamSearcher`` with
``CTCScorer``), and so is what it finds; the work in it is not. Keys and
values are cached, CTC prefixes are scored without a loop over frames, only
the hypotheses that stay in the beam are carried on, and an utterance leaves
the batch as soon as its search is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mala_asr.decoding.attention_scores import max_tokens
from mala_asr.decoding.cached_decoder import CachedDecoder
from mala_asr.decoding.ctc_prefix import CTCPrefixScorer
from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.hypothesis import Hypothesis, spell

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

    from mala_asr.models import MalaASR


class JointBeamSearch:
    """Beam search scored by the attention decoder and the CTC head.

    The score of a hypothesis y is
    ``(1 - w) log p_attention(y) + w log p_ctc(y)`` (Watanabe et al., 2017)
    divided by the number of its tokens, eos included.
    An utterance's search is over when as many hypotheses have ended as the
    beam holds; it has at most as many tokens as CTC frames.

    Arguments
    ---------
    model : MalaASR
        A model with an attention decoder, in evaluation mode.
    tokenizer : SentencePieceProcessor
        Turns token ids into text.
    beam_size : int
        Hypotheses kept at each step.
    ctc_weight : float
        The weight w of the CTC score, 0 to below 1.
    candidates : int, optional
        Tokens that may follow a hypothesis: the best by attention; by default
        twice the beam size, as in SpeechBrain. The size of the vocabulary or
        more lets all follow.

    Raises
    ------
    DecodingError
        When the model has no decoder or a setting is out of its range.

    Example
    -------
    >>> from mala_asr.data.tokenizer import load_tokenizer, train_tokenizer
    >>> from mala_asr.models import MalaASR
    >>> path = train_tokenizer(["A B"], getfixture("tmp_path"), kind="char")
    >>> tokenizer = load_tokenizer(path)
    >>> model = MalaASR(
    ...     len(tokenizer), d_model=64, num_encoder_layers=1,
    ...     num_decoder_layers=1, d_ffn=64,
    ... ).eval()
    >>> search = JointBeamSearch(model, tokenizer, beam_size=4)
    >>> enc, lengths = torch.rand(2, 9, 64), torch.tensor([9, 5])
    >>> [len(found) for found in search.n_best(enc, lengths, count=3)]
    [3, 3]
    """

    def __init__(
        self,
        model: MalaASR,
        tokenizer: SentencePieceProcessor,
        beam_size: int = 10,
        ctc_weight: float = 0.4,
        candidates: int | None = None,
    ) -> None:
        if not model.has_decoder:
            raise DecodingError(
                "the model was trained with CTC alone and has no attention "
                "decoder; decode it with ctc_greedy"
            )
        if beam_size < 1:
            raise DecodingError(f"beam size is {beam_size}; give 1 or more")
        if not 0.0 <= ctc_weight < 1.0:
            raise DecodingError(
                f"CTC weight is {ctc_weight}; give 0 to below 1 "
                "(ctc_greedy decodes by CTC alone)"
            )
        if candidates is None:
            candidates = 2 * beam_size
        if candidates < 1:
            raise DecodingError(f"candidates is {candidates}; give 1 or more")
        self.model = model
        self.tokenizer = tokenizer
        self.beam_size = beam_size
        self.ctc_weight = ctc_weight
        self.candidates = candidates

    def __call__(self, enc: Tensor, lengths: Tensor) -> list[Hypothesis]:
        """Search the best transcript of each utterance.

        Arguments
        ---------
        enc : Tensor
            Encoder output, (batch, frames, d_model).
        lengths : Tensor
            Valid frames of each utterance, (batch,), one or more.

        Returns
        -------
        list[Hypothesis]
            One per utterance, in order.

        Raises
        ------
        DecodingError
            When an utterance has no frames.
        """
        return [best for (best,) in self.n_best(enc, lengths, count=1)]

    @torch.inference_mode()
    def n_best(
        self, enc: Tensor, lengths: Tensor, count: int | None = None
    ) -> list[list[Hypothesis]]:
        """Search the best transcripts of each utterance.

        Arguments
        ---------
        enc : Tensor
            Encoder output, (batch, frames, d_model).
        lengths : Tensor
            Valid frames of each utterance, (batch,), one or more.
        count : int, optional
            How many of each; None for all that the search ends with.

        Returns
        -------
        list[list[Hypothesis]]
            For each utterance at least one and at most as many as the beam
            holds, all different, the best first.

        Raises
        ------
        DecodingError
            When an utterance has no frames.
        """
        if not len(lengths):
            return []
        search = Search(self, enc, lengths)
        while search.running:
            search.step()
        return search.hypotheses(count)


class Search:
    """A search over one batch, step by step.

    Arguments
    ---------
    settings : JointBeamSearch
        The model and how to search.
    enc : Tensor
        Encoder output, (batch, frames, d_model).
    lengths : Tensor
        Valid frames of each utterance, (batch,), one or more.

    Raises
    ------
    DecodingError
        When an utterance has no frames.
    """

    def __init__(
        self, settings: JointBeamSearch, enc: Tensor, lengths: Tensor
    ) -> None:
        if int(lengths.min()) < 1:
            raise DecodingError("an utterance without frames; leave it out")
        enc = enc[:, : int(lengths.max())]
        lengths = lengths.to(enc.device, torch.long)
        model, beam_size = settings.model, settings.beam_size
        self._tokenizer = tokenizer = settings.tokenizer
        self._eos, self._blank = tokenizer.eos_id(), tokenizer.pad_id()
        self._beam_size = beam_size
        self._weight = settings.ctc_weight
        self._candidates = settings.candidates
        batch = len(lengths)
        ctc_lengths = lengths * model.ctc_upsampling
        self._most = ctc_lengths.clamp(max=max_tokens(model))
        self._decoder = CachedDecoder(model, enc, lengths, beam_size)
        self._prefixes = None
        if self._weight > 0.0:
            self._prefixes = CTCPrefixScorer(
                model.ctc_log_probs(enc),
                ctc_lengths,
                beam_size,
                self._blank,
                self._eos,
            )
        # The utterances still searched. Their hypotheses have `_tokens`
        # (rows, beam, steps) that begin with bos, and `_attention` (rows,
        # beam), their log-probability by attention: -inf marks a place in
        # the beam that is free.
        self._rows = list(range(batch))
        self._ended: list[list[Hypothesis]] = [[] for _ in self._rows]
        self._tokens = lengths.new_full(
            (batch, beam_size, 1), tokenizer.bos_id(), dtype=torch.long
        )
        self._attention = enc.new_full(
            (batch, beam_size), -torch.inf, dtype=torch.float64
        )
        self._attention[:, 0] = 0.0
        vocab = torch.arange(len(tokenizer), device=enc.device)
        self._is_token = vocab != self._eos

    @property
    def running(self) -> bool:
        """Whether any utterance is still searched."""
        return bool(self._rows)

    def hypotheses(self, count: int | None = None) -> list[list[Hypothesis]]:
        """Give what has been found.

        Arguments
        ---------
        count : int, optional
            How many of each utterance; None for all.

        Returns
        -------
        list[list[Hypothesis]]
            For each utterance, the best first.
        """
        return [
            sorted(found, key=lambda ended: -ended.score)[:count]
            for found in self._ended
        ]

    def step(self) -> None:
        """Let every hypothesis go on by one token, and keep the best."""
        attention, total = self._scores()
        vocab_size = total.shape[2]
        total, index = total.flatten(1).topk(self._beam_size)
        parents = index.div(vocab_size, rounding_mode="floor")
        tokens = index % vocab_size
        self._attention = attention.flatten(1).gather(1, index)
        self._tokens = torch.cat(
            [
                self._tokens.gather(
                    1, parents.unsqueeze(-1).expand_as(self._tokens)
                ),
                tokens.unsqueeze(-1),
            ],
            dim=-1,
        )
        at_end = tokens == self._eos
        impossible = total == -torch.inf
        self._store(total, at_end & ~impossible)
        # An ended hypothesis leaves its place in the beam free.
        free = at_end | impossible
        self._attention.masked_fill_(free, -torch.inf)
        self._decoder.select(parents)
        if self._prefixes is not None:
            self._prefixes.advance(parents, tokens)
        self._leave(free.all(dim=1))

    def _scores(self) -> tuple[Tensor, Tensor]:
        """Score each hypothesis with each token: attention, and total."""
        log_probs = self._next_log_probs()
        if self._prefixes is None:
            attention = self._attention.unsqueeze(-1) + log_probs
            return attention, attention
        candidates = None
        if self._candidates < log_probs.shape[2]:
            best, candidates = log_probs.topk(self._candidates)
            end = log_probs[..., self._eos].clone()
            log_probs.fill_(-torch.inf).scatter_(2, candidates, best)
            log_probs[..., self._eos] = end
        attention = self._attention.unsqueeze(-1) + log_probs
        ctc = self._prefixes.scores(candidates)
        return attention, (1 - self._weight) * attention + self._weight * ctc

    def _next_log_probs(self) -> Tensor:
        """Ask the decoder: no blank, and only eos after the last frame."""
        log_probs = self._decoder.step(self._tokens[..., -1])
        log_probs[..., self._blank] = -torch.inf
        must_end = self._most < self._tokens.shape[2]
        return log_probs.masked_fill_(
            must_end[:, None, None] & self._is_token, -torch.inf
        )

    def _store(self, total: Tensor, ended: Tensor) -> None:
        """Keep what has ended now, the best first, a beam's worth in all."""
        length = self._tokens.shape[2] - 1
        for row, place in ended.nonzero().tolist():
            found = self._ended[self._rows[row]]
            if len(found) == self._beam_size:
                continue
            joint = total[row, place].item()
            attention = self._attention[row, place].item()
            scores = {"attention": attention}
            if self._prefixes is not None:
                ctc = joint - (1 - self._weight) * attention
                scores["ctc"] = ctc / self._weight
            tokens = self._tokens[row, place, 1:-1].tolist()
            found.append(
                Hypothesis(
                    text=spell(tokens, self._tokenizer),
                    tokens=tokens,
                    score=joint / length,
                    scores=scores,
                )
            )

    def _leave(self, without_hypotheses: Tensor) -> None:
        """Go on without the utterances whose search is over."""
        staying = [
            row
            for row, over in enumerate(without_hypotheses.tolist())
            if not over and len(self._ended[self._rows[row]]) < self._beam_size
        ]
        if len(staying) == len(self._rows):
            return
        self._rows = [self._rows[row] for row in staying]
        index = self._most.new_tensor(staying, dtype=torch.long)
        self._most = self._most[index]
        self._tokens = self._tokens[index]
        self._attention = self._attention[index]
        self._decoder.keep(index)
        if self._prefixes is not None:
            self._prefixes.keep(index)
