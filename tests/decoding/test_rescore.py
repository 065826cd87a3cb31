"""The best of a CTC beam search, reordered by the attention decoder."""

import pytest
import torch

from mala_asr.decoding import DecodingOptions
from mala_asr.decoding.attention_scores import attention_scores
from mala_asr.decoding.ctc_beam import CTCBeamSearch
from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.models import MalaASR
from tests.tones import ToneModel, texts, tones

pytest.importorskip("flashlight.lib.text")


@pytest.mark.parametrize("ctc_weight", [0.0, 0.4, 1.0])
def test_the_best_of_the_combined_scores(
    tone_model: ToneModel, ctc_weight: float
) -> None:
    model, tokenizer, _ = tone_model
    options = DecodingOptions(
        "rescore", beam_size=20, n_best=8, ctc_weight=ctc_weight
    )
    recognizer = Recognizer(model, tokenizer, options)
    # Noise, so that the hypotheses are many.
    torch.manual_seed(0)
    waves = [tones(t) + 0.1 * torch.randn(1) for t in texts(4, seed=7)]
    waves = [wave + 0.3 * torch.randn_like(wave) for wave in waves]
    encoded = recognizer.encode(waves)
    search = CTCBeamSearch(
        model,
        tokenizer,
        beam_size=20,
        token_beam=30,
        beam_threshold=25.0,
        word_score=0.0,
    )
    found = recognizer.decode(encoded)
    candidates = search.n_best(encoded.states, encoded.lengths, 8)
    assert min(map(len, candidates)) > 1
    attention = attention_scores(
        model,
        encoded.states,
        encoded.lengths,
        [[h.tokens for h in row] for row in candidates],
    )
    for best, row, parts in zip(found, candidates, attention, strict=True):
        totals = [
            ctc_weight * h.scores["ctc"] + (1 - ctc_weight) * part
            for h, part in zip(row, parts, strict=True)
        ]
        winner = totals.index(max(totals))
        assert best.text == row[winner].text
        assert best.score == pytest.approx(totals[winner], abs=1e-3)
        assert best.scores["attention"] == pytest.approx(
            parts[winner], abs=0.01
        )
    if ctc_weight == 1.0:
        assert [h.text for h in found] == [row[0].text for row in candidates]


def test_a_model_without_decoder_is_refused(tone_model: ToneModel) -> None:
    config = {**tone_model.model.config, "ctc_weight": 1.0}
    with pytest.raises(DecodingError, match="decode it with ctc_beam"):
        Recognizer(
            MalaASR(**config), tone_model.tokenizer, DecodingOptions("rescore")
        )
