"""The one way from speech to hypotheses."""

import pytest
import torch

from mala_asr.decoding import DECODERS
from mala_asr.decoding.ctc_greedy import ctc_greedy
from mala_asr.decoding.joint import DecodingError
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.models import MalaASR
from tests.tones import LETTER_FRAMES, ToneModel, texts, tones


def test_reads_the_tones(tone_model: ToneModel) -> None:
    said = texts(30, seed=1000)
    found = Recognizer(*tone_model[:2]).waves([tones(t) for t in said])
    assert [hypothesis.text for hypothesis in found] == said


def test_places_the_tokens_in_time(tone_model: ToneModel) -> None:
    (found,) = Recognizer(*tone_model[:2]).waves([tones("AB C")])
    middles = [LETTER_FRAMES * k + 2 for k in range(len(found.tokens))]
    assert len(found.tokens) == 5
    for frame, middle in zip(found.token_frames, middles, strict=True):
        assert abs(frame - middle) <= 1


@pytest.mark.parametrize("decoder", DECODERS)
def test_waves_and_features_agree(tone_model: ToneModel, decoder: str) -> None:
    recognizer = Recognizer(*tone_model[:2], decoder=decoder, beam_size=3)
    wave = tones("BAD")
    feats = tone_model.model.features(wave[None], torch.tensor([len(wave)]))
    assert recognizer.waves([wave]) == recognizer.features(*feats)


def test_decodes_without_dropout_and_leaves_the_mode(
    tone_model: ToneModel,
) -> None:
    torch.manual_seed(0)
    model = MalaASR(
        len(tone_model.tokenizer),
        d_model=64,
        num_encoder_layers=1,
        num_decoder_layers=1,
        d_ffn=64,
        dropout=0.5,
    )
    recognizer = Recognizer(model, tone_model.tokenizer)
    wave = tones("ABCD")
    model.train()
    assert recognizer.waves([wave]) == recognizer.waves([wave])
    assert model.training
    model.eval()
    recognizer.waves([wave])
    assert not model.training


def test_training_goes_on_after_decoding(tone_model: ToneModel) -> None:
    model, tokenizer, _ = tone_model
    feats, n_frames = model.features(tones("AB")[None], torch.tensor([12800]))
    Recognizer(model, tokenizer, "joint", 2).features(feats, n_frames)
    model(feats, n_frames).ctc_log_probs.sum().backward()
    model.zero_grad()


def test_spare_spaces_are_not_words(tone_model: ToneModel) -> None:
    tokenizer = tone_model.tokenizer
    space = tokenizer.piece_to_id("▁")
    letter = tokenizer.piece_to_id("A")
    path = torch.tensor([[space, letter, space, 0, space, letter, 0, space]])
    log_probs = torch.nn.functional.one_hot(path, len(tokenizer)).log()
    (found,) = ctc_greedy(log_probs, torch.tensor([8]), tokenizer)
    assert found.text == "A A"
    assert found.tokens == [space, letter, space, space, letter, space]


def test_nothing_in_nothing_out(tone_model: ToneModel) -> None:
    assert Recognizer(*tone_model[:2]).waves([]) == []


def test_a_recording_without_samples_is_refused(
    tone_model: ToneModel,
) -> None:
    with pytest.raises(DecodingError, match="without samples"):
        Recognizer(*tone_model[:2]).waves([tones("A"), torch.zeros(0)])


def test_an_unknown_decoder_is_refused(tone_model: ToneModel) -> None:
    with pytest.raises(DecodingError, match="choose from ctc_greedy, joint"):
        Recognizer(*tone_model[:2], decoder="greedy")
