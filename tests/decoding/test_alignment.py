"""When tokens and words were said."""

import pytest
import torch
from sentencepiece import SentencePieceProcessor

from mala_asr.data.tokenizer import load_tokenizer, train_tokenizer
from mala_asr.decoding.alignment import with_times
from mala_asr.decoding.hypothesis import Hypothesis, spell


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceProcessor:
    folder = tmp_path_factory.mktemp("letters")
    return load_tokenizer(train_tokenizer(["A B"], folder, kind="char"))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceProcessor:
    texts = ["THE CAT SAT ON THE MAT", "THAT CAT", "A MAT", "SO THE CAT SAID"]
    folder = tmp_path_factory.mktemp("pieces")
    return load_tokenizer(train_tokenizer(texts, folder, 20))


def certain(path: list[int], size: int, share: float = 0.97) -> torch.Tensor:
    """Log-probabilities that give a path this share of every frame."""
    one_hot = torch.nn.functional.one_hot(torch.tensor(path), size)
    return (one_hot * share + (1 - one_hot) * (1 - share) / (size - 1)).log()


def place(
    log_probs: torch.Tensor,
    tokens: list[int],
    tokenizer: SentencePieceProcessor,
    duration: float = 100.0,
) -> Hypothesis:
    found = Hypothesis(spell(tokens, tokenizer), tokens, 0.0)
    return with_times(found, log_probs, tokenizer, 0.5, duration)


def test_tokens_and_words_where_the_path_has_them(
    letters: SentencePieceProcessor,
) -> None:
    space, a, b = (letters.piece_to_id(piece) for piece in "▁AB")
    path = [0, space, a, a, 0, a, 0, space, 0, b, b]
    found = place(certain(path, 7), [space, a, a, space, b], letters)
    assert found.text == "AA B"
    assert found.token_spans is not None and found.words is not None
    times = [(s.text, s.start, s.end) for s in found.token_spans]
    assert times == [
        ("▁", 0.5, 1.0),
        ("A", 1.0, 2.0),
        ("A", 2.5, 3.0),
        ("▁", 3.5, 4.0),
        ("B", 4.5, 5.5),
    ]
    words = [(s.text, s.start, s.end) for s in found.words]
    assert words == [("AA", 1.0, 3.0), ("B", 4.5, 5.5)]
    for span in (*found.token_spans, *found.words):
        assert span.confidence == pytest.approx(0.97)


def test_a_doubtful_token_makes_its_word_doubtful(
    letters: SentencePieceProcessor,
) -> None:
    a, b = letters.piece_to_id("A"), letters.piece_to_id("B")
    log_probs = torch.cat((certain([a, b], 7), certain([b], 7, share=0.4)))
    found = place(log_probs, [a, b], letters)
    assert found.token_spans is not None and found.words is not None
    assert found.token_spans[0].confidence == pytest.approx(0.97)
    assert found.token_spans[1].confidence == pytest.approx((0.97 + 0.4) / 2)
    assert found.words[0].confidence == found.token_spans[1].confidence


@pytest.mark.parametrize("seed", range(20))
def test_one_monotone_span_for_each_word(
    pieces: SentencePieceProcessor, seed: int
) -> None:
    torch.manual_seed(seed)
    size = len(pieces)
    tokens = torch.randint(3, size, (12,)).tolist()  # 3: the unknown piece
    duration = 0.5 * 30 - 0.2
    log_probs = torch.randn(30, size).log_softmax(-1)
    found = place(log_probs, tokens, pieces, duration)
    assert found.words is not None and found.token_spans is not None
    assert [word.text for word in found.words] == found.text.split()
    for spans in (found.words, found.token_spans):
        times = [time for span in spans for time in (span.start, span.end)]
        assert times == sorted(times)
        assert times[0] >= 0 and times[-1] <= duration
        assert all(0 <= span.confidence <= 1 for span in spans)


def test_more_tokens_than_frames_are_spread_without_confidence(
    letters: SentencePieceProcessor,
) -> None:
    space, a = letters.piece_to_id("▁"), letters.piece_to_id("A")
    found = place(certain([a, a], 7), [a, a, space, a], letters)
    assert found.words is not None
    assert [(w.text, w.start, w.end) for w in found.words] == [
        ("AA", 0.0, 0.5),
        ("A", 0.75, 1.0),
    ]
    assert {word.confidence for word in found.words} == {0.0}


def test_nothing_was_said(letters: SentencePieceProcessor) -> None:
    for frames in (0, 3):
        found = place(certain([0] * 3, 7)[:frames], [], letters)
        assert (found.token_spans, found.words) == ([], [])
