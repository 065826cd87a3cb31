"""Candidates of others, scored by the attention decoder."""

import pytest
import torch

from mala_asr.decoding.attention_scores import attention_scores, max_tokens
from mala_asr.decoding.errors import DecodingError
from mala_asr.models.asr import BOS_INDEX, EOS_INDEX
from tests.tones import ToneModel, tones


def test_scores_are_those_of_one_candidate_at_a_time(
    tone_model: ToneModel,
) -> None:
    model, tokenizer, _ = tone_model
    waves = [tones("AB D"), tones("C")]
    padded = torch.nn.utils.rnn.pad_sequence(waves, batch_first=True)
    with torch.no_grad():
        enc, lengths = model.encode(
            *model.features(padded, torch.tensor([len(w) for w in waves]))
        )
    texts = [["AB D", "AB", "", "D B A"], ["C"]]
    candidates = [[tokenizer.encode(t) for t in row] for row in texts]

    found = attention_scores(model, enc, lengths, candidates)

    assert [len(row) for row in found] == [4, 1]
    for index, row in enumerate(candidates):
        frames = lengths[index : index + 1]
        alone = enc[index : index + 1, : frames.item()]
        for tokens, score in zip(row, found[index], strict=True):
            with torch.no_grad():
                log_probs = model.decoder_log_probs(
                    torch.tensor([[BOS_INDEX, *tokens]]), alone, frames
                )[0]
            steps = range(len(tokens) + 1)
            expected = log_probs[steps, [*tokens, EOS_INDEX]].sum().item()
            assert score == pytest.approx(expected, abs=1e-4)


def test_an_utterance_without_candidates(tone_model: ToneModel) -> None:
    enc = torch.rand(3, 4, 64)
    lengths = torch.tensor([4, 2, 1])
    found = attention_scores(tone_model.model, enc, lengths, [[], [[5]], []])
    assert [len(row) for row in found] == [0, 1, 0]
    assert attention_scores(tone_model.model, enc[:1], lengths[:1], [[]]) == [
        []
    ]


def test_more_tokens_than_positions_are_refused(tone_model: ToneModel) -> None:
    model = tone_model.model
    enc, lengths = torch.rand(1, 4, 64), torch.tensor([4])
    most = max_tokens(model)
    assert attention_scores(model, enc, lengths, [[[4] * most]])[0][0] < 0
    with pytest.raises(DecodingError, match=f"{most + 1} tokens"):
        attention_scores(model, enc, lengths, [[[4] * (most + 1)]])
