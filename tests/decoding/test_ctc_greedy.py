"""Greedy decoding of hand-made log-probabilities."""

import pytest
import torch

from mala_asr.decoding.ctc_greedy import ctc_greedy


class Letters:
    """A tokenizer of single letters; id 0 is the blank."""

    def pad_id(self) -> int:
        return 0

    def decode(self, ids: list[int]) -> str:
        return "".join("_ABC"[i] for i in ids)


def certain(*paths: list[int]) -> torch.Tensor:
    """Log-probabilities that leave no doubt about the path."""
    one_hot = torch.nn.functional.one_hot(torch.tensor(paths), 4)
    return (one_hot * 0.97 + 0.0075).log()


@pytest.mark.parametrize(
    "path, text",
    [
        ([1, 1, 2, 2, 3], "ABC"),
        ([1, 0, 1, 1, 0], "AA"),
        ([0, 0, 0, 0, 0], ""),
        ([0, 0, 0, 0, 3], "C"),
        ([1, 2, 1, 2, 1], "ABABA"),
    ],
)
def test_merges_repeats_and_drops_blanks(path: list[int], text: str) -> None:
    (best,) = ctc_greedy(certain(path), torch.tensor([5]), Letters())
    assert best.text == text
    assert best.tokens == ["_ABC".index(letter) for letter in text]


def test_does_not_read_beyond_the_length() -> None:
    log_probs = certain([1, 0, 2, 3], [1, 0, 2, 2])
    lengths = torch.tensor([3, 2])
    first, second = ctc_greedy(log_probs, lengths, Letters())
    assert (first.text, second.text) == ("AB", "A")
    per_frame = torch.tensor(0.9775).log().item()
    assert first.score == pytest.approx(3 * per_frame)
    assert second.score == pytest.approx(2 * per_frame)


def test_no_frames_is_an_empty_text() -> None:
    (best,) = ctc_greedy(certain([1, 2]), torch.tensor([0]), Letters())
    assert (best.text, best.tokens, best.score) == ("", [], 0.0)
