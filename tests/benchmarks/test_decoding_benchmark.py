"""The decoding benchmark times both searches and compares what they find."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile
import torch

from mala_asr.benchmarks import decoding
from mala_asr.benchmarks.decoding import Found, noise, recordings, report
from tests.tones import tones


@pytest.fixture(autouse=True)
def _same_threads_after_it():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_a_model_and_its_recordings(
    tone_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for index, text in enumerate(["AB", "ABC D", "D"]):
        soundfile.write(tmp_path / f"{index}.wav", tones(text).numpy(), 16000)
    arguments = ["--model", tone_folder, "--audio", tmp_path]
    settings = ["--utterances", 2, "--seconds", 0.6, "--beam_size", 4]
    status = decoding.main([str(a) for a in [*arguments, *settings]])

    assert status == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"model {tone_folder}" in lines[0]
    assert "2 utterances of 0.6 to 0.8 s, beam 4" in lines[1]
    assert "| the same best hypothesis | 2 of 2 (100.0 %) |" in lines
    assert any(line.startswith("| mala_asr | 0.") for line in lines)
    assert any(line.startswith("| 0-49 | ") for line in lines)


def test_without_a_model_an_untrained_one_listens_to_noise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    short = ["--utterances", "1", "--seconds", "0.5", "--beam_size", "2"]
    assert decoding.main([*short, "--all_tokens"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("untrained model of mini_librispeech_mala, noise")
    assert "| the same best hypothesis | 1 of 1 (100.0 %) |" in out


def test_an_interruption_loses_nothing_that_was_searched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(*_: object) -> Iterator[list[Found]]:
        yield [Found([([4], -0.5)], 1.0, [1.0]), Found([], 0.5, [0.5])]
        raise KeyboardInterrupt

    monkeypatch.setattr(decoding, "measure", measure)
    monkeypatch.setattr(decoding, "report", lambda *sides: f"{len(sides[0])}")
    assert decoding.main(["--seconds", "1"]) == 130
    assert "; 1 utterances of 1.0" in (out := capsys.readouterr().out)
    assert out.splitlines()[-1] == "1"


def test_the_report_says_where_they_differ() -> None:
    host = [
        Found([([4], -0.5), ([5], -0.75)], 4.0, [0.5] * 60),
        Found([([6], -0.25), ([7], -1.0)], 2.0, [0.25] * 50),
    ]
    ours = [
        Found([([4], -0.5), ([5], -1.0)], 0.5, [0.01] * 60),
        Found([([8], -0.25), ([6], -0.5)], 0.5, [0.02] * 50),
    ]
    lines = report(host, ours).splitlines()
    assert "| SpeechBrain | 3.000 s | 386.36 ms | 1.0x (1.0-1.0) |" in lines
    assert "| mala_asr | 0.500 s | 14.55 ms | 6.0x (4.0-8.0) |" in lines
    assert "| the same best hypothesis | 1 of 2 (50.0 %) |" in lines
    assert "| largest difference of its score | 0.0e+00 |" in lines
    assert "| SpeechBrain's n best that ours has too | 75.0 % |" in lines
    assert "| largest difference of a score of these | 2.5e-01 |" in lines
    assert "| 0-49 | 375.00 ms | 15.00 ms |" in lines
    assert "| 50-99 | 500.00 ms | 10.00 ms |" in lines


def test_the_recordings_nearest_to_a_length_are_taken(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name, wave in zip("abc", noise(3, 1.0, rate=8000), strict=True):
        keep = {"a": 2000, "b": 6000, "c": 8000}[name]
        soundfile.write(
            tmp_path / "deep" / f"{name}.wav", wave[:keep].numpy(), 8000
        )
    (tmp_path / "notes.txt").write_text("no audio")
    taken = recordings(tmp_path, 2, seconds=0.8, rate=8000)
    assert [len(wave) for wave in taken] == [6000, 8000]


def test_wrong_arguments_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments in (["--seconds", "0"], ["--beam_size", "-1"]):
        with pytest.raises(SystemExit) as stop:
            decoding.main(arguments)
        assert stop.value.code == 2
        assert "above zero" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--audio", "EMPTY"], "no .flac or .wav in"),
        (["--model", "EMPTY"], "config.json"),
        (["--ctc_weight", "1"], "CTC weight is 1.0"),
    ],
)
def test_what_cannot_be_searched_is_one_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [a.replace("EMPTY", str(tmp_path)) for a in arguments]
    assert decoding.main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("decoding benchmark: error: ")
    assert said in error
    assert len(error.splitlines()) == 1
