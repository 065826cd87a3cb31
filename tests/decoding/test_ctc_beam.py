"""Beam search over CTC, against every hypothesis there is."""

import itertools
import math
import sys
from pathlib import Path

import pytest
import torch
from sentencepiece import SentencePieceProcessor

from mala_asr.decoding.ctc_beam import CTCBeamSearch
from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.flashlight import load_kenlm
from mala_asr.decoding.hypothesis import Hypothesis, spell
from mala_asr.decoding.language_model import LanguageModel
from tests.decoding.language import (
    AS_GIVEN,
    spelled_out,
    train_letters,
    train_lm,
    train_pieces,
)

pytest.importorskip("flashlight.lib.text")

FRAMES = 5


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceProcessor:
    return train_letters(tmp_path_factory.mktemp("letters"))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceProcessor:
    return train_pieces(tmp_path_factory.mktemp("pieces"))


@pytest.fixture(scope="module")
def lms(
    tmp_path_factory: pytest.TempPathFactory, letters: SentencePieceProcessor
) -> dict[str, LanguageModel]:
    folder = tmp_path_factory.mktemp("lms")
    return {unit: train_lm(folder, unit, letters) for unit in ("word", "piece")}


def search(
    tokenizer: SentencePieceProcessor, **options: object
) -> CTCBeamSearch:
    settings = {"beam_size": 3000, "token_beam": 50, "beam_threshold": 1e4}
    return CTCBeamSearch(
        AS_GIVEN, tokenizer, **{**settings, "word_score": 0.0, **options}
    )


def best_of(
    decoder: CTCBeamSearch, log_probs: torch.Tensor, count: int = 1
) -> list[Hypothesis]:
    lengths = torch.tensor([log_probs.shape[1]])
    return decoder.n_best(log_probs, lengths, count)[0]


def random_frames(seed: int) -> torch.Tensor:
    """Log-probabilities of blank, space, A and B; the rest hardly ever."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(1, FRAMES, 7, generator=generator)
    logits[:, :, 1:4] = -50.0
    return logits.log_softmax(-1)


def every_hypothesis(
    log_probs: torch.Tensor,
) -> dict[tuple[int, ...], float]:
    """The CTC log-probability of every token sequence."""
    totals: dict[tuple[int, ...], list[float]] = {}
    for path in itertools.product((0, 4, 5, 6), repeat=FRAMES):
        tokens = tuple(k for k, _ in itertools.groupby(path) if k)
        score = sum(log_probs[0, t, k].item() for t, k in enumerate(path))
        totals.setdefault(tokens, []).append(score)
    return {
        tokens: torch.tensor(scores).logsumexp(0).item()
        for tokens, scores in totals.items()
    }


def lm_log_prob(lm: LanguageModel, units: list[str]) -> float:
    kenlm = load_kenlm(lm.path, lm.vocabulary)
    state, total = kenlm.start(False), 0.0
    for unit in units:
        state, score = kenlm.score(state, lm.vocabulary.index(unit))
        total += score
    return math.log(10) * (total + kenlm.finish(state)[1])


@pytest.mark.parametrize("seed", range(5))
def test_finds_the_most_likely_without_a_language_model(
    letters: SentencePieceProcessor, seed: int
) -> None:
    log_probs = random_frames(seed)
    everything = every_hypothesis(log_probs)
    (best,) = best_of(search(letters), log_probs)
    most_likely = max(everything, key=everything.__getitem__)
    assert tuple(best.tokens) == most_likely
    assert best.score == pytest.approx(everything[most_likely], abs=1e-3)
    assert best.scores == {"ctc": best.score}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("word_score", [0.0, 1.5])
def test_finds_the_best_with_a_language_model_of_pieces(
    letters: SentencePieceProcessor,
    lms: dict[str, LanguageModel],
    seed: int,
    word_score: float,
) -> None:
    log_probs, weight = random_frames(seed), 0.8
    lm = lms["piece"]
    totals = {}
    for tokens, ctc in every_hypothesis(log_probs).items():
        units = [letters.id_to_piece(token) for token in tokens]
        count = len(spell(tokens, letters).split())
        part = lm_log_prob(lm, units)
        totals[tokens] = (ctc + weight * part + word_score * count, ctc, part)
    winner = max(totals, key=lambda tokens: totals[tokens][0])
    decoder = search(
        letters, lm=str(lm.path), lm_weight=weight, word_score=word_score
    )
    (best,) = best_of(decoder, log_probs)
    assert tuple(best.tokens) == winner
    parts = (best.score, best.scores["ctc"], best.scores["lm"])
    assert parts == pytest.approx(totals[winner], abs=1e-2)


@pytest.mark.parametrize("unit", ["word", "piece"])
def test_the_parts_make_the_score(
    letters: SentencePieceProcessor, lms: dict[str, LanguageModel], unit: str
) -> None:
    lm = lms[unit]
    decoder = search(letters, lm=str(lm.path), lm_weight=0.7, word_score=-0.4)
    found = best_of(decoder, random_frames(3), count=20)
    assert len(found) > 5
    for hypothesis in found:
        words = hypothesis.text.split()
        total = hypothesis.scores["ctc"] + 0.7 * hypothesis.scores["lm"]
        assert hypothesis.score == pytest.approx(total - 0.4 * len(words))
        if unit == "word":
            expected = lm_log_prob(lm, words)
            assert hypothesis.scores["lm"] == pytest.approx(expected, abs=1e-3)
    scores = [hypothesis.score for hypothesis in found]
    assert scores == sorted(scores, reverse=True)
    assert len({hypothesis.text for hypothesis in found}) == len(found)


@pytest.mark.parametrize("text", ["AB", "AB BA", "BAB A AB", "A BA BA"])
def test_a_lexicon_of_letters_reads_what_is_spelled(
    letters: SentencePieceProcessor, lms: dict[str, LanguageModel], text: str
) -> None:
    decoder = search(letters, lm=str(lms["word"].path), lm_weight=0.1)
    path = [token for k in letters.encode(text) for token in (k, k, 0)]
    (best,) = best_of(decoder, spelled_out(path, 7, 0.9))
    assert (best.text, best.tokens) == (text, letters.encode(text))


def test_a_lexicon_admits_its_words_alone(
    letters: SentencePieceProcessor, lms: dict[str, LanguageModel]
) -> None:
    # "AA" is spelled clearly, and is no word of the language.
    path = [t for k in letters.encode("AA BAB") for t in (k, 0)]
    log_probs = spelled_out(path, 7, 0.8)
    (free,) = best_of(search(letters), log_probs)
    assert free.text == "AA BAB"
    decoder = search(letters, lm=str(lms["word"].path), lm_weight=0.5)
    for found in best_of(decoder, log_probs, count=10):
        assert set(found.text.split()) <= {"A", "AB", "BA", "BAB"}


@pytest.mark.parametrize("unit", ["word", "piece"])
def test_pieces_longer_than_letters(
    pieces: SentencePieceProcessor, tmp_path: Path, unit: str
) -> None:
    lm = train_lm(tmp_path, unit, pieces)
    decoder = search(pieces, lm=str(lm.path), lm_weight=0.3)
    for text in ("AB BA", "BAB AB", "A BA AB"):
        path = [token for k in pieces.encode(text) for token in (0, k)]
        log_probs = spelled_out(path, len(pieces), 0.9)
        (best,) = best_of(decoder, log_probs)
        assert best.text == text


def test_a_language_model_decides_where_the_sound_does_not(
    letters: SentencePieceProcessor, lms: dict[str, LanguageModel]
) -> None:
    # "BB" and "BA" sound much alike, and one of them is a word.
    space, b, last = letters.encode("BB")
    log_probs = spelled_out([space, b, 0, last], 7, 0.9)
    log_probs[0, 3] = math.log(1e-3)
    log_probs[0, 3, letters.piece_to_id("A")] = math.log(0.45)
    log_probs[0, 3, last] = math.log(0.54)
    assert best_of(search(letters), log_probs)[0].text == "BB"
    for lm in lms.values():
        decoder = search(letters, lm=str(lm.path), lm_weight=0.5)
        assert best_of(decoder, log_probs)[0].text == "BA"


def test_a_narrow_beam_is_narrower(letters: SentencePieceProcessor) -> None:
    log_probs = random_frames(1)
    wide = best_of(search(letters), log_probs, 1000)
    for narrow in (
        {"beam_size": 3},
        {"token_beam": 1},
        {"beam_threshold": 0.5},
    ):
        found = best_of(search(letters, **narrow), log_probs, 1000)
        assert 1 <= len(found) < len(wide)


@pytest.mark.parametrize("unit", [None, "word", "piece"])
def test_frames_beyond_the_end_do_not_count(
    letters: SentencePieceProcessor,
    lms: dict[str, LanguageModel],
    unit: str | None,
) -> None:
    lm = {"lm": str(lms[unit].path), "lm_weight": 0.5} if unit else {}
    decoder = search(letters, **lm)
    one, other = random_frames(5), random_frames(6)
    both = torch.cat((one, other))
    lengths = torch.tensor([FRAMES, 3])
    found = decoder(both, lengths)
    alone = decoder(other[:, :3], torch.tensor([3]))
    assert found[1] == alone[0]
    assert found[0] == decoder(one, torch.tensor([FRAMES]))[0]


@pytest.mark.parametrize("unit", [None, "word", "piece"])
@pytest.mark.parametrize("frames", [0, 1, 8])
def test_blanks_alone_are_an_empty_text(
    letters: SentencePieceProcessor,
    lms: dict[str, LanguageModel],
    unit: str | None,
    frames: int,
) -> None:
    lm = {"lm": str(lms[unit].path), "lm_weight": 0.2} if unit else {}
    log_probs = spelled_out([0] * 8, 7, 0.9999)[:, :frames]
    (best,) = best_of(search(letters, **lm), log_probs)
    assert (best.text, best.tokens) == ("", [])
    assert math.isfinite(best.score)


def test_a_piece_that_no_word_has(
    letters: SentencePieceProcessor, tmp_path: Path
) -> None:
    from mala_asr.decoding.ngram import train_language_model

    lm = train_language_model(["A AA", "AA A A"], tmp_path, "word", 2)
    decoder = search(letters, lm=str(lm.path), lm_weight=0.5)
    path = [t for k in letters.encode("BB A") for t in (k, 0)]
    (best,) = best_of(decoder, spelled_out(path, 7, 0.9))
    assert set(best.text.split()) <= {"A", "AA"}


def test_log_zero_is_no_number_to_stumble_over(
    letters: SentencePieceProcessor, lms: dict[str, LanguageModel]
) -> None:
    # Probabilities of 0 everywhere but on the path.
    log_probs = spelled_out(letters.encode("AB"), 7, 1.0)
    decoder = search(letters, lm=str(lms["piece"].path), lm_weight=0.5)
    (best,) = best_of(decoder, log_probs)
    assert (best.text, math.isfinite(best.score)) == ("AB", True)


def test_a_missing_library_is_named(
    letters: SentencePieceProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "flashlight.lib.text", None)
    with pytest.raises(DecodingError, match=r'pip install "mala_asr\[lm\]"'):
        search(letters)
