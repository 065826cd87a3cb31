"""mala-asr transcribe --stream, and the options of long recordings."""

import argparse
import io
import json
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path

import pytest
import soundfile
import torch
from speechbrain.utils.dynamic_chunk_training import DynChunkTrainConfig

from mala_asr.cli import transcribe
from mala_asr.cli.main import main
from mala_asr.inference import microphone, transcriber
from mala_asr.inference.microphone import MicrophoneError
from mala_asr.inference.model_folder import save_model_folder
from mala_asr.inference.stream import SpeechStream
from mala_asr.inference.transcriber import Transcriber
from mala_asr.models.streaming import EncoderStream
from tests.tones import SAMPLE_RATE, ToneModel, texts, tones


def pcm(wave: torch.Tensor) -> bytes:
    return (wave * 32767).round().short().numpy().astype("<i2").tobytes()


def stream(
    folder: Path, data: bytes, *options: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "mala_asr.cli", "transcribe"),
            *("--model", str(folder), "--stream", "-", *options),
        ],
        input=data,
        capture_output=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def speech() -> bytes:
    pause = torch.zeros(2 * SAMPLE_RATE)
    said = [part for t in texts(4, seed=90) for part in (tones(t), pause)]
    return pcm(torch.cat(said))


def expected(folder: Path, data: bytes) -> list[str]:
    stream = Transcriber(folder, "cpu").stream()
    results = stream.push_pcm(data) + stream.finish()
    return [result.text for result in results if result.final]


def test_lines_of_raw_audio(tone_folder: Path, speech: bytes) -> None:
    done = stream(tone_folder, speech)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == expected(tone_folder, speech)
    assert len(done.stdout.split()) > 4


def test_json_has_partial_results_too(tone_folder: Path, speech: bytes) -> None:
    options = ("-f", "json", "--stream-chunk", "0.64", "--left-context", "99")
    done = stream(tone_folder, speech, *options)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    final = [result["text"] for result in results if result["final"]]
    assert final == expected(tone_folder, speech)
    assert len(results) > len(final)
    for result in results:
        assert [w["text"] for w in result["words"]] == result["text"].split()
        assert 0 <= result["start"] < result["end"] <= result["heard"]


def test_the_chunk_changes_what_is_heard(
    tone_folder: Path, speech: bytes
) -> None:
    short = stream(tone_folder, speech, "--stream-chunk", "0.08")
    assert short.returncode == 0
    assert short.stdout.decode().split() != expected(tone_folder, speech)


def test_a_file_in_place_of_raw_audio(
    tone_folder: Path, tmp_path: Path
) -> None:
    soundfile.write(tmp_path / "a.wav", tones("A").numpy(), SAMPLE_RATE)
    done = stream(tone_folder, (tmp_path / "a.wav").read_bytes())
    assert done.returncode == 1
    assert b"the standard input is WAV, not raw audio" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "options, said",
    [
        (["--stream", "a.wav"], "one input: - for raw audio"),
        (["--stream", "-", "mic"], "one input"),
        (["--stream", "-", "-o", "out"], "--output-dir is not for --stream"),
        (["--stream", "-", "--batch-size", "8"], "--batch-size is not for"),
        (["--stream", "-", "--segment", "auto"], "--segment is not for"),
        (["--stream", "-", "--backend", "onnx"], "--backend is not for"),
        (["--stream", "-", "--dtype", "bfloat16"], "--dtype is not for"),
        (["--stream", "-", "--left-context", "-1"], "-1 s; give 0 or more"),
        (["--stream", "-", "-f", "srt"], "-f txt or -f json"),
        (["--stream", "-", "--beam-size", "4"], "decoded with ctc_greedy"),
        (["--stream", "-", "--decoder", "joint"], "decoded with ctc_greedy"),
        (["--stream-chunk", "1", "a.wav"], "--stream-chunk needs --stream"),
        (["--left-context", "1", "a.wav"], "--left-context needs --stream"),
        (["--segment", "one-pass", "--overlap", "1", "a.wav"], "--overlap"),
        (["--segment", "silence", "--overlap", "1", "a.wav"], "--overlap"),
        (
            ["--segment", "one-pass", "--chunk-length", "9", "a.wav"],
            "--chunk-length changes nothing",
        ),
        (
            ["--chunk-length", "9", "--overlap", "9", "a.wav"],
            "at most a third of the chunk",
        ),
    ],
)
def test_what_does_not_go_together(
    options: Sequence[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    soundfile.write("a.wav", [0.0] * 1600, SAMPLE_RATE)
    assert main(["transcribe", "--model", "none", *options]) == 2
    assert said in capsys.readouterr().err


# What it takes to give each option; None where a stream does what it says.
GIVEN: dict[str, list[str] | None] = {
    "model": None,
    "device": None,
    "threads": None,
    "compile": None,  # tests/inference/test_engines.py
    "quantize": None,
    "no_progress": None,
    "stream": None,
    "stream_chunk": None,
    "left_context": None,
    "decoder": ["--decoder", "joint"],
    "channel": ["--channel", "split"],
    "segment": ["--segment", "auto"],
    "output_format": ["-f", "srt"],
    "existing": ["--overwrite"],
    "word_timestamps": ["--word-timestamps"],
    "backend": ["--backend", "onnx"],
    "dtype": ["--dtype", "bfloat16"],
}


def options_of_transcribe() -> list[argparse.Action]:
    parser = argparse.ArgumentParser(add_help=False)
    transcribe.add_arguments(parser)
    return [action for action in parser._actions if action.option_strings]


@pytest.mark.parametrize(
    "action", options_of_transcribe(), ids=lambda action: action.dest
)
def test_no_option_is_ignored(
    action: argparse.Action, capsys: pytest.CaptureFixture[str]
) -> None:
    given = GIVEN.get(action.dest, [action.option_strings[-1], "1"])
    if given is None:
        return
    model = ["--model", "none"]
    assert main(["transcribe", *model, "--stream", "-", *given]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def listen_to(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(microphone, "listen", lambda rate: iter([data]))


@pytest.mark.parametrize(
    "options, shown", [([], True), (["--no-progress"], False)]
)
def test_words_before_their_line_is_final(
    options: list[str],
    shown: bool,
    tone_folder: Path,
    speech: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listen_to(speech, monkeypatch)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    command = ["transcribe", "--model", str(tone_folder), "--stream", "mic"]
    assert main([*command, *options]) == 0
    assert ("\r" in terminal.getvalue()) == shown


def test_threads_and_eight_bits(
    tone_folder: Path, speech: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams: list[SpeechStream] = []

    class Spy(SpeechStream):
        def __init__(self, *settings: object) -> None:
            super().__init__(*settings)
            streams.append(self)

    monkeypatch.setattr(transcriber, "SpeechStream", Spy)
    listen_to(speech, monkeypatch)
    command = ["transcribe", "--model", str(tone_folder), "--stream", "mic"]
    before = torch.get_num_threads()
    try:
        assert main([*command, "--threads", str(before + 1)]) == 0
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)
    assert main([*command, "--quantize", "int8"]) == 0
    generator = torch.Generator().manual_seed(0)
    feats = torch.randn(1, 200, 40, generator=generator)
    exact, rounded = (
        EncoderStream(one.model, DynChunkTrainConfig(16)).push(feats, True)
        for one in streams
    )
    assert 1e-4 < float((exact - rounded).abs().max()) < 0.5


def test_a_beam_search_is_not_even_loaded(
    tone_model: ToneModel,
    speech: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = save_model_folder(
        tmp_path / "model",
        tone_model.model,
        tone_model.tokenizer_path,
        facts={"decoding": {"decoder": "ctc_beam"}},
    )
    monkeypatch.setitem(sys.modules, "flashlight.lib.text", None)
    listen_to(speech, monkeypatch)
    command = ["transcribe", "--model", str(folder), "--stream", "mic"]
    assert main(command) == 0
    assert len(capsys.readouterr().out.split()) > 4


def test_long_recordings_in_every_way(
    tone_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.wav"
    said = " ".join(texts(9, seed=91))
    soundfile.write(path, tones(said).numpy(), SAMPLE_RATE)
    for options, spoken_of in (
        (["--segment", "auto"], ""),
        (["--segment", "silence", "--chunk-length", "4"], "by silence, as"),
        (["--chunk-length", "4", "--overlap", "1"], "by chunks, as asked"),
    ):
        model = ["--model", str(tone_folder)]
        assert main(["transcribe", *model, str(path), *options]) == 0
        out, err = capsys.readouterr()
        assert spoken_of in err
        assert (out == f"{said}\n") or spoken_of
        assert len(out.split()) > 3


class FakeInput:
    """Stands in for sounddevice.RawInputStream: calls back three times."""

    def __init__(self, samplerate, channels, dtype, blocksize, callback):
        assert (channels, dtype) == (1, "int16")
        self.blocks = [b"\1\0" * blocksize] * 3
        self.callback = callback

    def __enter__(self):
        for block in self.blocks:
            self.callback(memoryview(block), len(block) // 2, None, None)
        return self

    def __exit__(self, *details):
        pass


def fake_sounddevice(stream: type) -> types.ModuleType:
    module = types.ModuleType("sounddevice")
    module.RawInputStream = stream
    module.PortAudioError = type("PortAudioError", (Exception,), {})
    return module


def test_the_microphone_gives_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = fake_sounddevice(FakeInput)
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    blocks = microphone.listen(16000)
    assert [len(next(blocks)) for _ in range(3)] == [3200] * 3


def test_the_end_of_a_microphone_recording_is_printed(
    tone_folder: Path,
    speech: bytes,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def listen(rate):
        yield speech
        raise KeyboardInterrupt

    monkeypatch.setattr(microphone, "listen", listen)
    model = ["--model", str(tone_folder)]
    assert main(["transcribe", *model, "--stream", "mic"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == expected(tone_folder, speech)


def test_without_a_microphone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(MicrophoneError, match=r"mala_asr\[microphone\]"):
        next(microphone.listen(16000))
    fake = fake_sounddevice(FakeInput)

    def unplugged(**_):
        raise fake.PortAudioError("no default input device")

    fake.RawInputStream = unplugged
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    with pytest.raises(MicrophoneError, match="no default input.*16000 Hz"):
        next(microphone.listen(16000))
