"""The benchmark of long recordings joins, measures and reports."""

import re
from pathlib import Path

import pytest
import soundfile

from mala_asr.benchmarks.long_form import join_utterances, main, measure
from mala_asr.data.manifest import Utterance, write_manifest
from tests.tones import SAMPLE_RATE, texts, tones


def utterances(*chapters: int) -> list[Utterance]:
    return [
        Utterance(f"1-{chapter}-{n:04d}", 20.0, "", "1", f"W{n}")
        for chapter, count in enumerate(chapters)
        for n in range(count)
    ]


@pytest.mark.parametrize("minutes", [0.1, 1.0, 1.5, 3.0, 99.0])
@pytest.mark.parametrize("within", ["set", "speaker", "chapter"])
def test_joining_keeps_every_utterance_in_order(
    minutes: float, within: str
) -> None:
    said = utterances(7, 1, 10)
    joined = join_utterances(said, minutes, within)
    assert [u for one in joined for u in one] == said
    if within == "chapter":
        assert all(len({u.id[:4] for u in one}) == 1 for one in joined)
    elif minutes < 6:
        assert all(20.0 * len(one) >= 60 * minutes for one in joined)


def test_every_way_is_in_the_table(
    tone_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for number, text in enumerate(texts(8, seed=95)):
        path = tmp_path / f"{number}.wav"
        soundfile.write(path, tones(text).numpy(), SAMPLE_RATE)
        seconds = soundfile.info(path).duration
        name = f"1-1-{number:04d}"
        said.append(Utterance(name, seconds, str(path), "1", text))
    csv = tmp_path / "set.csv"
    write_manifest(csv, said)
    model = ["--model", str(tone_folder), "--set", str(csv)]
    assert (
        main(["wer", *model, "--minutes", "0.05", "--chunk-length", "4"]) == 0
    )
    out = capsys.readouterr().out
    row = out.splitlines()[-1]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[0] == "0.05" and int(cells[1]) > 1
    assert cells[3] == "0.00 (0.00)" and all(re.match(r"\d", c) for c in cells)


@pytest.mark.slow
def test_an_hour_is_linear_and_within_the_prediction() -> None:
    """About a minute, at the size of conformer_small."""
    minute, ten = (measure(seconds, repeats=1) for seconds in (60, 600))
    assert ten.rtf < 1.5 * minute.rtf
    assert ten.peak - ten.idle <= ten.predicted
    assert ten.predicted <= 3 * 2**30 / 6
