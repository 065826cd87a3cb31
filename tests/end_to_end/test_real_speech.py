"""Real recordings through the real training code, to no error at all.

A model that cannot learn eight utterances by heart has a bug somewhere
between its features and its loss.
"""

import json
import shutil
from pathlib import Path

import pytest
import soundfile

from mala_asr.cli.main import main

UTTERANCES = 8
SPLIT = "eight"

# What helps a model to generalize would keep it from learning by heart.
OVERRIDES = {
    "train_splits": f"[{SPLIT}]",
    "valid_splits": f"[{SPLIT}]",
    "test_splits": f"[{SPLIT}]",
    "number_of_epochs": "120",
    "schedule": "{warmup_steps: 30, peak: 0.002}",
    "model": "{dropout: 0.0}",
    "speeds": "[1.0]",
    "augment": "null",
    "num_buckets": "1",
    "keep_checkpoints": "1",
    "average_checkpoints": "1",
}


def shortest_utterances(corpus: Path, count: int) -> list[Path]:
    return sorted(
        corpus.rglob("*.flac"), key=lambda path: soundfile.info(path).duration
    )[:count]


def make_split(corpus: Path, destination: Path) -> dict[str, str]:
    """Copy the shortest utterances into a split; give their words by id."""
    words = {}
    for transcript in sorted(corpus.rglob("*.trans.txt")):
        for line in transcript.read_text().splitlines():
            name, _, text = line.partition(" ")
            words[name] = text
    chosen = {}
    for source in shortest_utterances(corpus, UTTERANCES):
        speaker, chapter, _ = source.stem.split("-")
        folder = destination / SPLIT / speaker / chapter
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / source.name)
        chosen[source.stem] = words[source.stem]
        with open(folder / f"{speaker}-{chapter}.trans.txt", "a") as stream:
            stream.write(f"{source.stem} {words[source.stem]}\n")
    return chosen


@pytest.mark.slow
def test_eight_real_utterances_are_learned_by_heart(
    real_speech: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    corpus, run = tmp_path / "corpus", tmp_path / "run"
    references = make_split(real_speech, corpus)
    options = {**OVERRIDES, "data_folder": corpus, "output_folder": run}
    arguments = [f"--{key}={value}" for key, value in options.items()]

    assert main(["train", "mini_librispeech_mala.yaml", *arguments]) == 0

    result = json.loads((run / "results.json").read_text())[SPLIT]
    assert result["utterances"] == UTTERANCES
    assert result["words"] == sum(len(t.split()) for t in references.values())
    assert result["WER"] == 0.0
    first_line = (run / f"wer_{SPLIT}.txt").read_text().splitlines()[0]
    assert first_line.startswith("%WER 0.00 [ 0 / ")

    # What was trained is what a user gets: export it, transcribe the files.
    model = tmp_path / "model"
    assert main(["export", str(run), str(model)]) == 0
    files = sorted(str(path) for path in corpus.rglob("*.flac"))
    capsys.readouterr()
    assert main(["transcribe", "--model", str(model), *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = dict(line.split("\t") for line in lines)
    assert found == {path: references[Path(path).stem] for path in files}
