"""JSON lines and CSV."""

from pathlib import Path

import pytest

from mala_asr.scoring import ScoringError, Transcripts, read_transcripts

MANIFEST = """\
ID,duration,wav,spk_id,wrd
a-1,1.5,a.flac,ann,"ONE, TWO"
a-2,2.25,b.flac,ben,
"""
NEMO = (
    '{"audio_filepath": "x/1.wav", "duration": 1.5, "text": "one two", '
    '"pred_text": "one too"}\n'
)


def read(folder: Path, name: str, text: str, **options: str) -> Transcripts:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_transcripts(path, **options)


def test_a_manifest(tmp_path: Path) -> None:
    found = read(tmp_path, "dev.csv", MANIFEST)
    assert found.texts == {"a-1": "ONE, TWO", "a-2": ""}
    assert found.durations == {"a-1": 1.5, "a-2": 2.25}
    assert found.speakers == {"a-1": "ann", "a-2": "ben"}
    assert found.sets == {}


def test_both_sides_in_one_file(tmp_path: Path) -> None:
    assert read(tmp_path, "m.jsonl", NEMO).texts == {"x/1.wav": "one two"}
    found = read(tmp_path, "m.jsonl", NEMO, hypothesis=True)
    assert found.texts == {"x/1.wav": "one too"}


def test_sets_and_tabs(tmp_path: Path) -> None:
    found = read(tmp_path, "m.tsv", "id\ttext\tsplit\n1\tone, two\ttest\n")
    assert found.texts == {"1": "one, two"}
    assert found.sets == {"1": "test"}


def test_named_fields(tmp_path: Path) -> None:
    text = '{"id": 1, "name": "a", "text": "x", "clean": "y"}\n'
    found = read(tmp_path, "m.jsonl", text, id_field="name", text_field="clean")
    assert found.texts == {"a": "y"}


def test_a_field_over_lines_and_a_very_long_one(tmp_path: Path) -> None:
    long = "word " * 50_000
    found = read(tmp_path, "m.csv", f'id,text\na,"one\ntwo"\nb,{long}\n')
    assert found.texts["a"].split() == ["one", "two"]
    assert len(found.texts["b"].split()) == 50_000


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("m.jsonl", "[1]\n", "line 1: not in the jsonl format"),
        ("m.jsonl", '{"id": "a", "text": "x"}\n{\n', "line 2: not in the"),
        ("m.jsonl", '{"id": "a", "name": "x"}\n', "no field of words"),
        ("m.jsonl", '{"text": "x"}\n', "no field of id .* --id-field"),
        ("m.jsonl", '{"id": "a", "text": null}\n', "'text' has no text"),
        ("m.jsonl", '{"id": "a", "text": ["x"]}\n', "'text' has no text"),
        (
            "m.jsonl",
            '{"id": "a", "text": "x"}\n{"id": "a", "text": "x"}\n',
            "line 2: id 'a' a second time",
        ),
        (
            "m.jsonl",
            '{"id": "a", "text": "x", "duration": "long"}\n',
            "duration 'long' is not",
        ),
        ("m.jsonl", '{"id": "a", "text": "\\ud800"}\n', "is no character"),
        ("m.csv", "id,text\na,x,y\n", "line 2: 3 fields, .* names 2"),
        ("m.csv", "one,two\na,x\n", "no field of id"),
        ("m.csv", "id,text\n", "no transcripts"),
    ],
)
def test_faults_are_named(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    with pytest.raises(ScoringError, match=said):
        read(tmp_path, name, text)
