"""The table of the decoders has a row for each way to decode."""

from pathlib import Path

import pytest
import soundfile

from mala_asr.benchmarks.decoders import main
from mala_asr.decoding.ngram import train_language_model
from tests.tones import texts, tones

pytest.importorskip("flashlight.lib.text")


def test_every_decoder_with_and_without(
    tone_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = texts(3, seed=4000)
    lines = ["ID,duration,wav,spk_id,wrd"]
    for number, text in enumerate(said):
        path = tmp_path / f"{number}.wav"
        soundfile.write(path, tones(text).numpy(), 16000)
        seconds = soundfile.info(path).duration
        lines.append(f"{number},{seconds},{path},a,{text}")
    manifest = tmp_path / "dev.csv"
    manifest.write_text("\n".join(lines) + "\n")
    lm = train_language_model(said, tmp_path, "word", 2)
    command = ["--model", str(tone_folder), "--dev", str(manifest)]
    command += ["--test", str(manifest), "--lm", str(lm.path)]
    assert main([*command, "--device", "cpu"]) == 0
    table = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("|")
    ]
    assert table[0][-1] == "dev: WER % (real-time factor)"
    assert [row[:2] for row in table[2:]] == [
        ["ctc_greedy", ""],
        ["ctc_beam", ""],
        ["ctc_beam", "word"],
        ["joint", ""],
        ["rescore", ""],
        ["rescore", "word"],
    ]
    assert all(float(row[-1].split()[0]) >= 0 for row in table[2:])
    assert table[2][-1].startswith("0.00 (")
    assert "lm_weight" in table[4][2] and "ctc_weight" in table[5][2]
