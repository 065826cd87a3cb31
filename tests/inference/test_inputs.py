"""What users name, what is found, and what its outputs are called."""

import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from mala_asr.data.manifest import ManifestError
from mala_asr.inference import inputs
from mala_asr.inference.inputs import (
    InputError,
    choose_channels,
    find_recordings,
)
from mala_asr.inference.manifests import read_recordings
from mala_asr.inference.names import distinct, folded
from mala_asr.inference.transcript import Recording


def write(path: Path, channels: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.zeros((800, channels)), 8000)
    return path


def find(*named: object, spool: Path | None = None) -> list[Recording]:
    def fail(name: str, error: InputError) -> None:
        raise AssertionError(error)

    return find_recordings(map(str, named), spool or Path(), fail)


def names(*named: object) -> list[str]:
    return [recording.id for recording in distinct(find(*named))]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a.wav", "x/b.FLAC", "x/y/c.ogg", "x/y/a.wav", ".h/d.wav"):
        write(tmp_path / name)
    (tmp_path / "x" / "notes.txt").write_text("no audio")
    (tmp_path / "x" / "._b.FLAC").write_text("no audio either")
    return tmp_path


def test_a_folder_is_searched_to_its_depth(
    tree: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert names(tree) == ["a", "x/b", "x/y/a", "x/y/c"]
    assert [r.path for r in find(tree / "x")] == [
        str(tree / "x" / name) for name in ("b.FLAC", "y/a.wav", "y/c.ogg")
    ]
    assert "1 files whose names do not end like audio" in caplog.text


def test_links_are_followed_once(tree: Path) -> None:
    (tree / "x" / "loop").symlink_to(tree)
    (tree / "x" / "link.wav").symlink_to(tree / "a.wav")
    assert names(tree) == ["a", "x/b", "x/link", "x/y/a", "x/y/c"]


def test_patterns(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(tree / "*.wav") == ["a"]
    assert names(tree / "**" / "*.wav") == ["a", "x/y/a"]
    assert names(tree / "x" / "*" / "[ac].*") == ["y/a", "y/c"]
    assert names(tree / "?") == ["x/b", "x/y/a", "x/y/c"]
    monkeypatch.chdir(tree / "x")
    assert names("*.FLAC") == ["b"]
    assert names("../*.wav") == ["a"]


def test_a_file_that_looks_like_a_pattern(tmp_path: Path) -> None:
    path = write(tmp_path / "a[1].wav")
    write(tmp_path / "a1.wav")
    assert [r.path for r in find(path)] == [str(path)]


def test_a_missing_file_is_left_to_its_reader(tmp_path: Path) -> None:
    assert [r.path for r in find(tmp_path / "no.wav")] == [
        str(tmp_path / "no.wav")
    ]


def test_names_without_recordings(tree: Path) -> None:
    (tree / "empty").mkdir()
    failed: dict[str, str] = {}
    named = [str(tree / n) for n in ("empty", "*.xyz", "a.wav")]
    found = find_recordings(
        named, tree, lambda name, error: failed.update({name: str(error)})
    )
    assert [r.name for r in found] == ["a"]
    assert "has no audio files" in failed[named[0]]
    assert "no file matches" in failed[named[1]]


def test_what_is_named_twice_is_taken_once(
    tree: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert names(tree / "a.wav", tree, tree / "x" / ".." / "a.wav") == [
        "a",
        "x/b",
        "x/y/a",
        "x/y/c",
    ]
    assert caplog.text.count("named twice") == 2


def test_equal_names_are_told_apart(tree: Path) -> None:
    write(tree / "x" / "a.wav")
    write(tree / "a.mp3")
    write(tree / "A.WAV")
    found = names(tree, tree / "x")
    assert len({folded(name) for name in found}) == len(found) == 7
    assert {"a.mp3", "x/a"} < set(found)


def test_names_stay_apart_whatever_they_are() -> None:
    paths = ["a.wav", "a-2.wav", "b/a.wav", "b/a-2.wav", "A.wav"]
    parts = [
        Recording(path, start=float(n), channel=channel)
        for path in paths
        for n in range(3)
        for channel in (None, 1)
    ]
    ids = {folded(recording.id) for recording in distinct(parts)}
    assert len(ids) == len(parts)


class Pipe(io.TextIOWrapper):
    """Standard input with bytes in it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))


def test_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "a.wav").read_bytes()
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr(sys, "stdin", Pipe(data))
    (found,) = find("-", spool=spool)
    assert Path(found.path).read_bytes() == data
    assert (found.name, found.label) == ("stdin", "-")
    errors: list[str] = []
    find_recordings(["-"], spool, lambda _, error: errors.append(str(error)))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    find_recordings(["-"], spool, lambda _, error: errors.append(str(error)))
    assert "twice" in errors[0] and "nothing is piped" in errors[1]


def test_channels(tmp_path: Path) -> None:
    one, two = write(tmp_path / "1.wav"), write(tmp_path / "2.wav", 2)
    bad = tmp_path / "bad.wav"
    bad.write_text("not audio")
    found = find(one, two, bad)
    assert choose_channels(found, "mix") == found
    split = choose_channels(found, "split")
    assert [r.id for r in split] == ["1", "2-ch1", "2-ch2", "bad"]
    assert [r.channel for r in split] == [None, 1, 2, None]
    chosen = choose_channels(found, "2")
    assert [r.channel for r in chosen] == [2, 2, 2]
    assert chosen[0].label == f"{one} (channel 2)"


def test_a_speechbrain_manifest(tmp_path: Path) -> None:
    path = tmp_path / "dev.csv"
    path.write_text(
        "ID,duration,wav,spk_id,wrd,start,stop\n"
        "u-1,1.5,/x/a.wav,s,HELLO,0.5,2.0\nu-2,4.0,/x/a.wav,s,YOU,,\n"
    )
    first, second = read_recordings(path)
    assert (first.id, first.start, first.stop) == ("u-1", 0.5, 2.0)
    assert (second.id, second.start, second.stop) == ("u-2", None, None)
    assert first.source == second.path == "/x/a.wav"
    assert first.label == "u-1"


def test_a_nemo_manifest(tmp_path: Path) -> None:
    write(tmp_path / "a.wav")
    path = tmp_path / "dev.jsonl"
    rows: list[dict[str, object]] = [
        {"audio_filepath": "a.wav", "duration": 0.1, "text": "x"},
        {"audio_filepath": "a.wav", "offset": 0.0, "duration": 0.05},
        {"audio_filepath": "a.wav", "offset": 0.05, "text": None},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    found = read_recordings(path)
    assert [(r.start, r.stop) for r in found] == [
        (None, None),
        (0.0, 0.05),
        (0.05, None),
    ]
    assert {r.path for r in found} == {str(tmp_path / "a.wav")}
    assert {r.source for r in found} == {"a.wav"}
    assert len({r.id for r in found}) == 3


def test_lines_end_where_a_csv_says(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_bytes("ID,wav,wrd\r\na,a.wav,ONE\u2028TWO\x0cTHREE\r\n".encode())
    (found,) = read_recordings(path)
    assert (found.id, found.path) == ("a", "a.wav")


def test_paths_count_from_the_working_folder_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "lists" / "a.wav")
    path = tmp_path / "lists" / "list.csv"
    path.write_text("path\na.wav\n")
    assert read_recordings(path)[0].path == str(path.parent / "a.wav")
    write(tmp_path / "a.wav")
    monkeypatch.chdir(tmp_path)
    assert read_recordings(path)[0].path == "a.wav"


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "lists no recordings"),
        ("wav\n", "lists no recordings"),
        ("ID,words\na,b\n", "line 2: no audio"),
        ("ID,wav\na,x.wav\na,y.wav\n", "'a' appears twice"),
        ("wav,start\nx.wav,soon\n", "start is 'soon'"),
        ("wav,stop\nx.wav,-1\n", "stop is '-1'"),
        ("wav,start\nx.wav,nan\n", "start is 'nan'"),
        ('wav\n"x.wav\n', "write it anew as CSV"),
        ('{"wav": "x.wav"\n', "line 1: not a JSON object"),
        ('{"wav": "x"}\n[1]\n', "line 2: not a JSON object"),
        ('{"wav": "x", "stop": [1]}\n', "stop is"),
        ('{"wav": "x", "id": "a\\u0000b"}\n', "cannot be printed"),
        ('{"wav": null, "id": "a"}\n', "no audio"),
        ("[" * 100000, "no audio|no recordings|not a JSON"),
    ],
)
def test_lists_that_cannot_be_read(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "list"
    path.write_text(text)
    with pytest.raises(ManifestError, match=said) as caught:
        read_recordings(path)
    assert "\n" not in str(caught.value)


def test_lists_that_are_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="cannot read the manifest"):
        read_recordings(tmp_path / "no.csv")
    path = tmp_path / "list.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError, match="not UTF-8"):
        read_recordings(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission(tree: Path) -> None:
    (tree / "x").chmod(0)
    errors: list[str] = []
    find_recordings(
        [str(tree)], tree, lambda _, error: errors.append(str(error))
    )
    (tree / "x").chmod(0o755)
    assert "cannot search" in errors[0]


def test_every_suffix_is_lower_case() -> None:
    assert all(s == s.lower() and s[0] == "." for s in inputs.SUFFIXES)
