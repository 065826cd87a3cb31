"""Prefix scores against their definition and against the loop over frames."""

import itertools
import math

import pytest
import torch

from mala_asr.decoding.ctc_prefix import CTCPrefixScorer

BLANK, EOS = 0, 1


def collapsed(path: tuple[int, ...]) -> tuple[int, ...]:
    """What a path spells."""
    return tuple(token for token, _ in itertools.groupby(path) if token)


def transcripts(log_probs: torch.Tensor) -> dict[tuple[int, ...], float]:
    """The probability of every transcript, by trying every path."""
    frames, vocab_size = log_probs.shape
    total: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(vocab_size), repeat=frames):
        score = sum(log_probs[t, c].item() for t, c in enumerate(path))
        text = collapsed(path)
        total[text] = total.get(text, 0.0) + math.exp(score)
    return total


def scorer_after(
    log_probs: torch.Tensor, lengths: torch.Tensor, prefix: list[int]
) -> CTCPrefixScorer:
    """A scorer whose one hypothesis of each utterance is a prefix."""
    scorer = CTCPrefixScorer(log_probs, lengths, 1, BLANK, EOS)
    same = torch.zeros(len(lengths), 1, dtype=torch.long)
    for token in prefix:
        scorer.advance(same, torch.full_like(same, token))
    return scorer


@pytest.mark.parametrize("prefix", [[], [2], [2, 2], [2, 3], [3, 3, 3], [1]])
def test_scores_are_sums_over_all_paths(prefix: list[int]) -> None:
    torch.manual_seed(0)
    log_probs = torch.randn(5, 4).double().log_softmax(-1)
    # Padding that would be the most likely token, if it were read.
    padded = torch.cat([log_probs, torch.tensor([[-50.0, -50, 0, -50]])])
    texts = transcripts(log_probs)
    scorer = scorer_after(padded[None], torch.tensor([5]), prefix)

    scores = scorer.scores()[0, 0].exp()

    assert scores[BLANK] == 0.0
    assert scores[EOS].item() == pytest.approx(
        texts.get(tuple(prefix), 0.0), abs=1e-12
    )
    for token in (2, 3):
        longer = (*prefix, token)
        expected = sum(
            p for text, p in texts.items() if text[: len(longer)] == longer
        )
        assert scores[token].item() == pytest.approx(expected, abs=1e-12)


def loop(
    log_probs: torch.Tensor, prefix: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Algorithm 2 of Watanabe et al., frame by frame, for one prefix."""
    frames, vocab_size = log_probs.shape
    never = torch.tensor(-torch.inf, dtype=torch.float64)
    blank = [torch.zeros((), dtype=torch.float64)]
    for t in range(frames):
        blank.append(blank[-1] + log_probs[t, BLANK])
    token = [never] * (frames + 1)
    last = None
    for c in prefix:
        before = (
            blank if c == last else list(map(torch.logaddexp, token, blank))
        )
        new_token, new_blank = [never], [never]
        for t in range(frames):
            stay = torch.logaddexp(new_token[t], before[t])
            rest = torch.logaddexp(new_token[t], new_blank[t])
            new_token.append(stay + log_probs[t, c])
            new_blank.append(rest + log_probs[t, BLANK])
        token, blank, last = new_token, new_blank, c
    both = torch.stack(list(map(torch.logaddexp, token, blank)))
    scores = torch.logsumexp(both[:-1, None] + log_probs, dim=0)
    if last is not None:
        only_blank = torch.stack(blank)[:-1]
        scores[last] = torch.logsumexp(only_blank + log_probs[:, last], 0)
    return scores, both[-1]


@pytest.mark.parametrize("sharpness", [1.0, 10.0, 100.0])
def test_long_and_sharp_is_as_frame_by_frame(sharpness: float) -> None:
    torch.manual_seed(1)
    frames, vocab_size = 600, 12
    logits = sharpness * torch.randn(frames, vocab_size, dtype=torch.float64)
    log_probs = logits.log_softmax(-1)
    best = collapsed(tuple(logits.argmax(-1).tolist()))[:100]
    prefix = [token for token in best if token != EOS]
    # One token that was not said, and one repeated.
    prefix[40:40] = [5, prefix[39]]

    found = scorer_after(log_probs[None], torch.tensor([frames]), prefix)
    scores = found.scores()[0, 0]
    expected, end = loop(log_probs, prefix)

    # Far below the best they underflow to -inf, which excludes them as well.
    near = expected > expected.max() - 500
    near[[BLANK, EOS]] = False
    assert near.sum() > 2
    torch.testing.assert_close(scores[near], expected[near], rtol=0, atol=1e-6)
    assert scores[EOS].item() == pytest.approx(end.item(), abs=1e-6)


def test_each_hypothesis_and_utterance_has_its_own() -> None:
    torch.manual_seed(2)
    log_probs = torch.randn(3, 9, 6).log_softmax(-1)
    lengths = torch.tensor([9, 4, 7])
    scorer = CTCPrefixScorer(log_probs, lengths, 2, BLANK, EOS)
    first = torch.tensor([[2, 3], [4, 2], [5, 4]])
    scorer.advance(torch.zeros(3, 2, dtype=torch.long), first)
    parents = torch.tensor([[1, 1], [0, 1], [1, 0]])
    second = torch.tensor([[3, 2], [5, 2], [2, 5]])
    scorer.advance(parents, second)
    scorer.keep(torch.tensor([2, 0]))
    scores = scorer.scores()

    for row, utterance in enumerate([2, 0]):
        for place in range(2):
            parent = parents[utterance, place]
            prefix = [first[utterance, parent], second[utterance, place]]
            alone = scorer_after(
                log_probs[utterance, None, : lengths[utterance]],
                lengths[utterance, None],
                [token.item() for token in prefix],
            ).scores()
            torch.testing.assert_close(scores[row, place], alone[0, 0])


@pytest.mark.parametrize("vocab_size", [10, 200])
def test_candidates_are_scored_as_the_whole_vocabulary_is(
    vocab_size: int,
) -> None:
    torch.manual_seed(3)
    log_probs = torch.randn(2, 20, vocab_size).log_softmax(-1)
    scorer = CTCPrefixScorer(log_probs, torch.tensor([20, 11]), 2, BLANK, EOS)
    last = torch.tensor([[2, 3], [4, 5]])
    scorer.advance(torch.zeros(2, 2, dtype=torch.long), last)
    # Among them the hypothesis' last token, the blank and eos.
    candidates = torch.stack(
        [last, last + 1, torch.full_like(last, BLANK), last * 0 + EOS], dim=-1
    )
    whole = scorer.scores()
    some = scorer.scores(candidates)
    torch.testing.assert_close(
        some.gather(2, candidates), whole.gather(2, candidates)
    )
    assert (some[..., EOS] > -torch.inf).all()


def test_an_impossible_hypothesis_stays_impossible() -> None:
    log_probs = torch.randn(1, 2, 4).log_softmax(-1)
    scorer = CTCPrefixScorer(log_probs, torch.tensor([2]), 2, BLANK, EOS)
    # The second place of the beam was empty, and two of one token need
    # a blank between them: three frames.
    assert (scorer.scores()[0, 1] == -torch.inf).all()
    scorer.advance(torch.tensor([[0, 1]]), torch.tensor([[2, 3]]))
    scores = scorer.scores()[0]
    assert scores[0, 2] == -torch.inf and scores[0, 3] > -torch.inf
    assert (scores[1] == -torch.inf).all()
    scorer.advance(torch.tensor([[0, 0]]), torch.tensor([[2, 3]]))
    scores = scorer.scores()[0]
    assert (scores[0] == -torch.inf).all()
    assert not scores.isnan().any()
