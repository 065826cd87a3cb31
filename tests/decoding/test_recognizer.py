"""The one way from speech to hypotheses."""

import re

import pytest
import torch

from mala_asr.decoding import DecodingOptions
from mala_asr.decoding.ctc_greedy import ctc_greedy
from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.models import MalaASR
from tests.decoders import EVERY_DECODER
from tests.tones import LETTER_SECONDS, SAMPLE_RATE, ToneModel, texts, tones


def test_reads_the_tones(tone_model: ToneModel) -> None:
    said = texts(30, seed=1000)
    found = Recognizer(*tone_model[:2]).waves([tones(t) for t in said])
    assert [hypothesis.text for hypothesis in found] == said


@pytest.mark.parametrize("decoder", EVERY_DECODER)
def test_words_lie_where_they_were_said(
    tone_model: ToneModel, decoder: str
) -> None:
    recognizer = Recognizer(
        *tone_model[:2], DecodingOptions(decoder), word_times=True
    )
    waves = [tones("AB C"), tones("DA")]
    for found, wave in zip(recognizer.waves(waves), waves, strict=True):
        assert [word.text for word in found.words] == found.text.split()
        # Letter k of "AB C" is said from 0.2 (k + 1) on: spaces are silent.
        for word, place in zip(
            found.words, words_with_places(found.text), strict=True
        ):
            first, last = (LETTER_SECONDS * (k + 1) for k in place)
            assert word.start == pytest.approx(first, abs=0.12)
            assert word.end == pytest.approx(last + 0.2, abs=0.16)
        assert found.words[-1].end <= len(wave) / SAMPLE_RATE
        assert len(found.token_spans) == len(found.tokens)


def words_with_places(text: str) -> list[tuple[int, int]]:
    """First and last letter of each word, counted in the whole text."""
    return [
        (match.start(), match.end() - 1) for match in re.finditer(r"\S+", text)
    ]


def test_times_only_where_asked_for(tone_model: ToneModel) -> None:
    (found,) = Recognizer(*tone_model[:2]).waves([tones("AB")])
    assert (found.words, found.token_spans) == (None, None)


@pytest.mark.parametrize("decoder", EVERY_DECODER)
def test_waves_and_features_agree(tone_model: ToneModel, decoder: str) -> None:
    recognizer = Recognizer(*tone_model[:2], DecodingOptions(decoder))
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
    options = DecodingOptions("joint", beam_size=2)
    Recognizer(model, tokenizer, options).features(feats, n_frames)
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


def test_an_utterance_without_frames_is_refused(
    tone_model: ToneModel,
) -> None:
    feats = torch.zeros(2, 3, 40)
    with pytest.raises(DecodingError, match="without frames"):
        Recognizer(*tone_model[:2]).features(feats, torch.tensor([3, 0]))


@pytest.mark.parametrize("decoder", EVERY_DECODER)
@pytest.mark.parametrize("samples", [1, 80, 16000])
def test_silence_and_hardly_any_audio(
    tone_model: ToneModel, decoder: str, samples: int
) -> None:
    recognizer = Recognizer(
        *tone_model[:2], DecodingOptions(decoder), word_times=True
    )
    (found,) = recognizer.waves([torch.zeros(samples)])
    assert [word.text for word in found.words] == found.text.split()
    for word in found.words:
        assert 0 <= word.start <= word.end <= samples / SAMPLE_RATE


@pytest.mark.parametrize("decoder", EVERY_DECODER)
def test_all_blank_is_an_empty_text(
    tone_model: ToneModel, decoder: str
) -> None:
    model = MalaASR(**tone_model.model.config)
    with torch.no_grad():
        model.ctc_head.bias[tone_model.tokenizer.pad_id()] = 100.0
    options = {} if decoder.startswith("ctc") else {"ctc_weight": 0.99}
    recognizer = Recognizer(
        model,
        tone_model.tokenizer,
        DecodingOptions(decoder, **options),
        word_times=True,
    )
    (found,) = recognizer.waves([tones("AB")])
    assert (found.text, found.tokens, found.words) == ("", [], [])
