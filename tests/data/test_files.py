"""A file is replaced whole or not at all."""

from pathlib import Path

import pytest

from mala_asr.data.files import replacing


def test_a_failure_leaves_the_old_file_and_no_rest(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("ne")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_new_file_is_as_readable_as_any(tmp_path):
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    with replacing(tmp_path / "a.txt") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "a.txt").stat().st_mode == ordinary.stat().st_mode


def test_the_longest_names(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 251 + ".txt")
    with replacing(path) as temporary:
        temporary.write_text("whole")
    assert path.read_text() == "whole"
