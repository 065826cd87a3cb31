"""The benchmark of streams: rates, and latencies that make sense."""

from pathlib import Path

import pytest
import soundfile
import torch

from mala_asr.benchmarks.streaming import listen, main
from mala_asr.data.manifest import Utterance, write_manifest
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.inference.stream import SpeechStream
from tests.tones import SAMPLE_RATE, ToneModel, texts, tones


def test_a_word_is_counted_once_and_after_its_end(
    tone_model: ToneModel,
) -> None:
    recognizer = Recognizer(*tone_model[:2])
    pause = torch.zeros(SAMPLE_RATE)
    said = texts(5, seed=97)
    wave = torch.cat([part for text in said for part in (tones(text), pause)])
    latencies = {}
    for chunk in (0.16, 1.28):
        heard = listen(SpeechStream(recognizer, chunk), wave, SAMPLE_RATE)
        stream = SpeechStream(recognizer, chunk)
        results = stream.push(wave) + stream.finish()
        words = [w.text for r in results if r.final for w in r.words]
        assert heard.texts[""].split() == words
        assert len(heard.latencies) == len(words) > 2
        assert min(heard.latencies) > 0
        latencies[chunk] = sum(heard.latencies) / len(words)
    assert latencies[0.16] < latencies[1.28]


def test_the_table(
    tone_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for number, text in enumerate(texts(5, seed=98)):
        path = tmp_path / f"{number}.wav"
        soundfile.write(path, tones(text).numpy(), SAMPLE_RATE)
        seconds = soundfile.info(path).duration
        said.append(Utterance(str(number), seconds, str(path), "1", text))
    csv = tmp_path / "set.csv"
    write_manifest(csv, said)
    model = ["--model", str(tone_folder), "--set", str(csv)]
    chunks = ["--chunks", "0.32", "0.64", "--left", "1"]
    assert main([*model, *chunks]) == 0
    rows = capsys.readouterr().out.splitlines()[4:]
    cells = [[c.strip() for c in row.strip("|").split("|")] for row in rows]
    assert [row[:2] for row in cells] == [
        ["0.32", "all"],
        ["0.32", "1"],
        ["0.64", "all"],
        ["0.64", "1"],
        ["full context", "all"],
    ]
    assert cells[-1][2] == "0.00"
