"""Long recordings: one pass, chunks and silence give the words said."""

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from operator import itemgetter

import pytest
import torch

from mala_asr.decoding import DecodingOptions
from mala_asr.decoding.alignment import WordBuilder
from mala_asr.decoding.hypothesis import Hypothesis, Span
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.errors import UsageError
from mala_asr.inference import long_form
from mala_asr.inference.engines import OnnxRecognizer
from mala_asr.inference.long_form import (
    LongFormDecoder,
    LongFormError,
    chunk_bounds,
    quiet_moments,
)
from mala_asr.inference.memory import one_pass_bytes
from mala_asr.inference.segmentation import WAYS, Segmentation
from mala_asr.inference.transcript import Recording, Transcript
from mala_asr.models import MalaASR
from tests.tones import LETTERS, SAMPLE_RATE, ToneModel, texts, tones


@pytest.fixture(scope="module")
def said() -> str:
    """Half a minute of tones."""
    return " ".join(texts(26, seed=70))


def decoder(
    tone_model: ToneModel, decoder: str = "ctc_greedy", **segmentation: object
) -> LongFormDecoder:
    options = DecodingOptions(decoder)
    recognizer = Recognizer(*tone_model[:2], options)
    return LongFormDecoder(recognizer, Segmentation(**segmentation), 3)


class ToneReader(Recognizer):
    """Reads tones by their pitch: every word right, but for those cut off."""

    def waves(self, waves: Sequence[torch.Tensor]) -> list[Hypothesis]:
        return [self._read(wave) for wave in waves]

    def _read(self, wave: torch.Tensor) -> Hypothesis:
        block = SAMPLE_RATE // 100
        frames = wave[: len(wave) // block * block].view(-1, block)
        loud = (frames.abs().amax(1) > 0.01).tolist()
        spans: list[Span] = []
        for voiced, run in groupby(enumerate(loud), itemgetter(1)):
            indices = [index for index, _ in run]
            first, end = indices[0], indices[-1]
            if voiced:
                tone = wave[first * block : (end + 1) * block]
                spans.append(self._letter(tone, first / 100, (end + 1) / 100))
        return self._spelled(spans)

    def _letter(self, tone: torch.Tensor, start: float, end: float) -> Span:
        spectrum = torch.fft.rfft(tone, SAMPLE_RATE).abs()
        pitch = float(spectrum[250:1200].argmax()) + 250
        number = round(math.log(pitch / 300, 1.5))
        return Span(LETTERS[number], start, end, 1.0)

    def _spelled(self, letters: Sequence[Span]) -> Hypothesis:
        spans, builder, words = [], WordBuilder(), []
        for before, letter in zip([None, *letters], letters, strict=False):
            if before is None or letter.start - before.end > 0.1:
                space = replace(letter, text="▁", end=letter.start)
                space = replace(space, start=letter.start - 0.01)
                spans.append(space)
                words += builder.add(space, " ")
            spans.append(letter)
            words += builder.add(letter, letter.text)
        words += builder.finish()
        tokens = [self.tokenizer.piece_to_id(span.text) for span in spans]
        text = " ".join(word.text for word in words)
        return Hypothesis(
            text, tokens, 0.0, token_spans=spans, words=list(words)
        )


def transcript(long: LongFormDecoder, wave: torch.Tensor) -> Transcript:
    seconds = len(wave) / SAMPLE_RATE
    segments = long.decode(wave, long.plan(seconds, "tones"))
    return Transcript(Recording("tones"), seconds, segments)


def check_times(found: Transcript) -> None:
    edges = [segment.start for segment in found.segments]
    assert edges[0] == 0.0
    assert found.segments[-1].end == found.duration
    for one, other in pairwise(found.segments):
        assert one.start <= one.end == other.start
    if found.words is not None:
        assert [w.text for w in found.words] == found.text.split()
        for one, other in pairwise(found.words):
            assert one.start <= one.end <= other.start + 1e-6


@pytest.mark.parametrize("way", ["auto", "one-pass"])
def test_one_pass_hears_what_was_said(
    tone_model: ToneModel, said: str, way: str
) -> None:
    long = decoder(tone_model, way=way, chunk_length=6.0)
    found = transcript(long, tones(said))
    assert found.text == said
    check_times(found)
    assert len(found.segments) == 1


@pytest.mark.parametrize("length", [3.0, 6.0, 11.1])
def test_segments_between_pauses_hear_what_was_said(
    tone_model: ToneModel, said: str, length: float
) -> None:
    reader = ToneReader(*tone_model[:2])
    long = LongFormDecoder(reader, Segmentation("silence", length))
    found = transcript(long, tones(said))
    assert found.text == said
    check_times(found)
    assert len(found.segments) > 2


@pytest.mark.parametrize("length", [3.5, 4.1, 5.0, 7.7, 9.0, 20.0])
@pytest.mark.parametrize("overlap", [1.0, 1.1])
def test_chunks_lose_and_double_nothing(
    tone_model: ToneModel, said: str, length: float, overlap: float
) -> None:
    reader = ToneReader(*tone_model[:2])
    segmentation = Segmentation("chunks", length, overlap)
    found = transcript(LongFormDecoder(reader, segmentation), tones(said))
    assert found.text == said
    check_times(found)
    (whole,) = reader.waves([tones(said)])
    assert found.words is not None and whole.words is not None
    for one, other in zip(found.words, whole.words, strict=True):
        assert abs(one.start - other.start) < 0.02
        assert abs(one.end - other.end) < 0.02


@pytest.mark.parametrize("name", ["ctc_greedy", "joint", "ctc_beam"])
def test_chunks_of_every_decoder(
    tone_model: ToneModel, said: str, name: str
) -> None:
    long = decoder(
        tone_model, name, way="chunks", chunk_length=5.0, overlap=1.0
    )
    found = transcript(long, tones(said))
    check_times(found)
    assert len(found.text.split()) > len(said.split()) / 2
    tokenizer = tone_model.tokenizer
    for segment in found.segments:
        text = tokenizer.decode(segment.hypothesis.tokens)
        assert " ".join(text.split()) == segment.hypothesis.text
        assert len(segment.hypothesis.tokens) == len(
            segment.hypothesis.token_spans
        )


def test_chunks_shorter_than_a_word_still_cover_everything(
    tone_model: ToneModel,
) -> None:
    word = "ABCDABCDABCD"  # 2.4 s, more than two chunks
    reader = ToneReader(*tone_model[:2])
    long = LongFormDecoder(reader, Segmentation("chunks", 1.0, 0.3))
    found = transcript(long, tones(f"{word} A"))
    check_times(found)
    # Words cannot be told apart, but what was said between is all there.
    assert found.text.endswith(" A")
    assert len(found.segments) > 3
    assert all(segment.hypothesis.text for segment in found.segments)


@pytest.mark.parametrize("way", WAYS)
def test_silence_gives_no_words(tone_model: ToneModel, way: str) -> None:
    long = decoder(tone_model, way=way, chunk_length=2.0, overlap=0.5)
    found = transcript(long, torch.zeros(5 * SAMPLE_RATE))
    assert found.text == ""
    check_times(found)


@pytest.mark.parametrize("way", WAYS)
def test_a_recording_shorter_than_a_chunk(
    tone_model: ToneModel, way: str
) -> None:
    long = decoder(tone_model, way=way)
    wave = tones("AB CD")
    assert not long.is_long(len(wave) / SAMPLE_RATE)
    assert transcript(long, wave).text == "AB CD"
    assert transcript(long, wave[:1]).text == ""


@pytest.mark.parametrize(
    "options, said",
    [
        ({"way": "words"}, "unknown segmentation 'words'; choose from auto"),
        ({"chunk_length": 10, "overlap": 10}, "overlap at most a third"),
        ({"chunk_length": 10, "overlap": -1}, "overlap is -1"),
        ({"chunk_length": 0.5}, "give at least 1"),
        ({"chunk_length": float("nan")}, "chunk length is nan"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Segmentation(**options)


@pytest.mark.parametrize("samples", [10, 11, 29, 30, 31, 100, 1001])
@pytest.mark.parametrize("longest, overlap", [(10, 0), (10, 3), (30, 10)])
def test_chunks_tile_the_recording(
    samples: int, longest: int, overlap: int
) -> None:
    bounds = chunk_bounds(samples, longest, overlap)
    assert bounds[0][0] == 0 and bounds[-1][1] == samples
    assert all(0 < end - start <= longest for start, end in bounds)
    for (_, end), (start, _) in pairwise(bounds):
        assert end - start == overlap
    for (_, end), (start, _) in zip(bounds, bounds[2:], strict=False):
        assert start >= end  # never three at once


def test_cuts_are_in_the_pauses() -> None:
    wave = torch.randn(60 * SAMPLE_RATE)
    pauses = [7.0, 13.5, 22.0, 28.0, 36.0, 44.5, 53.0]
    for pause in pauses:
        at = round(pause * SAMPLE_RATE)
        wave[at : at + SAMPLE_RATE // 2] *= 0.01
    cuts = [c / SAMPLE_RATE for c in quiet_moments(wave, SAMPLE_RATE, 10.0)]
    assert all(any(p < c < p + 0.5 for p in pauses) for c in cuts)
    assert all(b - a <= 10.0 for a, b in pairwise([0.0, *cuts, 60.0]))


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(long_form, "available_bytes", lambda device: 2**20)
    yield


def test_auto_goes_by_memory_and_says_so(
    tone_model: ToneModel,
    said: str,
    little_memory: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    reader = ToneReader(*tone_model[:2])
    long = LongFormDecoder(reader, Segmentation("auto", 6.0, 1.5))
    assert transcript(long, tones(said)).text == said
    assert "min in chunks of 6 s at most: one pass would take" in caplog.text
    assert "GiB free" in caplog.text


def test_one_pass_without_the_memory_is_refused_before_it_starts(
    tone_model: ToneModel, little_memory: None
) -> None:
    long = decoder(tone_model, way="one-pass", chunk_length=6.0)
    with pytest.raises(LongFormError, match="talk.wav: 60:00 min do not fit"):
        long.plan(3600.0, "talk.wav")


def test_an_attention_decoder_gets_chunks(tone_model: ToneModel) -> None:
    assert decoder(tone_model, "joint").plan(100.0, "talk").way == "chunks"
    assert (
        decoder(tone_model, "ctc_greedy").plan(100.0, "talk").way == "one-pass"
    )


def test_hypermixing_has_an_end(tone_model: ToneModel) -> None:
    model = MalaASR(
        **{**tone_model.model.config, "attention": "hypermixing"}
    ).eval()
    plain = decoder(tone_model)
    recognizer = Recognizer(model, tone_model.tokenizer)
    assert LongFormDecoder(recognizer).plan(100.0, "talk").way == "one-pass"
    plan = LongFormDecoder(recognizer).plan(121.0, "talk")
    assert plan.way == "chunks" and "hypermixing takes 120 s" in plan.reason
    assert plain.plan(121.0, "talk").way == "one-pass"


def test_predicted_memory_is_linear_but_for_softmax(
    tone_model: ToneModel,
) -> None:
    model = tone_model.model
    one, two, three = (
        one_pass_bytes(model, hours * 3600, "ctc_greedy") for hours in (1, 2, 3)
    )
    assert three - two == pytest.approx(two - one)
    config = {**model.config, "attention": "softmax_relpos"}
    with torch.device("meta"):
        softmax = MalaASR(**config)
    hour, half = (one_pass_bytes(softmax, s, "joint") for s in (3600, 1800))
    assert hour > 3.9 * half
    timed = one_pass_bytes(model, 3600, "ctc_beam", word_times=True)
    assert timed > one_pass_bytes(model, 3600, "ctc_beam") + 2**30


@pytest.mark.parametrize(
    "config, mib",
    [
        # Peaks of ONNX Runtime over 300 s beyond the loaded model, measured
        # in ru_maxrss; of the third, conformer_small's sizes, beyond 10 s.
        (
            {
                "vocab_size": 32,
                "frontend": "separable8",
                "d_model": 256,
                "d_ffn": 704,
                "ctc_upsampling": 2,
            },
            210,
        ),
        (
            {
                "vocab_size": 31,
                "frontend": "separable4",
                "d_model": 96,
                "d_ffn": 384,
            },
            195,
        ),
        ({"vocab_size": 5000, "d_model": 144, "frontend": "conv4"}, 563),
        # The most in VmHWM beyond the model and the samples.
        ({"vocab_size": 1000, "frontend": "conv4"}, 483),
        ({"vocab_size": 5000, "frontend": "separable8"}, 306),
        ({"vocab_size": 32, "frontend": "separable8", "n_fft": 2048}, 518),
        (
            {
                "vocab_size": 32,
                "frontend": "separable4",
                "d_model": 256,
                "d_ffn": 4096,
            },
            412,
        ),
    ],
)
def test_a_graph_takes_more_memory_than_blocks(config: dict, mib: int) -> None:
    with torch.device("meta"):
        model = MalaASR(**config, num_encoder_layers=1, ctc_weight=1.0)
    at_once = one_pass_bytes(model, 300.0, "ctc_greedy", blocks=False) / 2**20
    assert mib < at_once < 2.2 * mib
    assert one_pass_bytes(model, 300.0, "ctc_greedy") / 2**20 < mib


@pytest.mark.parametrize(
    "seconds, mib", [(30.0, 111), (60.0, 417), (150.0, 2479)]
)
def test_a_graph_of_softmax_takes_more_tables(seconds: float, mib: int) -> None:
    with torch.device("meta"):
        model = MalaASR(
            1000,
            attention="softmax_relpos",
            num_encoder_layers=1,
            ctc_weight=1.0,
        )
    # Measured as above, with two layers.
    at_once = one_pass_bytes(model, seconds, "ctc_greedy", blocks=False)
    assert mib < at_once / 2**20 < 1.3 * mib + 250


def test_auto_knows_that_a_graph_has_no_blocks(
    tone_model: ToneModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Recognizer(*tone_model[:2])
    onnx = OnnxRecognizer(None, *tone_model[:2])
    monkeypatch.setattr(long_form, "available_bytes", lambda device: 2**30)
    ways = [LongFormDecoder(r).plan(1800.0, "x").way for r in (plain, onnx)]
    assert ways == ["one-pass", "chunks"]


def test_segments_keep_what_the_decoder_said(
    tone_model: ToneModel, said: str
) -> None:
    long = decoder(tone_model, way="silence", chunk_length=6.0)
    (first, *_) = transcript(long, tones(said)).segments
    wave = tones(said)[: round(first.end * SAMPLE_RATE)]
    (alone,) = long.recognizer.waves([wave])
    assert replace(alone, score=0, scores={}) == replace(
        first.hypothesis, score=0, scores={}
    )
