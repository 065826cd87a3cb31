"""A folder of transcripts: what is there, what is left, what is refused."""

from pathlib import Path

import pytest

from mala_asr.decoding.hypothesis import Hypothesis
from mala_asr.inference import outputs
from mala_asr.inference.outputs import OutputError, OutputFolder
from mala_asr.inference.transcript import Recording, Segment, Transcript


def said(text: str, name: str = "x/a") -> Transcript:
    segment = Segment(0.0, 1.0, Hypothesis(text, [], 0.0, words=[]))
    return Transcript(Recording("a.wav", name), 1.0, [segment])


def files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    )


def test_a_file_for_each_format(tmp_path: Path) -> None:
    output = OutputFolder(tmp_path, ["txt", "srt", "textgrid"])
    output.write(said("AB"))
    assert files(tmp_path) == ["x/a.TextGrid", "x/a.srt", "x/a.txt"]


def test_what_is_there_is_refused_skipped_or_overwritten(
    tmp_path: Path,
) -> None:
    OutputFolder(tmp_path, ["txt"]).write(said("OLD"))
    waiting = [Recording("a.wav", "x/a"), Recording("b.wav", "x/b")]
    with pytest.raises(OutputError, match=r"a\.txt is there already"):
        OutputFolder(tmp_path, ["txt"]).to_do(waiting)
    skip = OutputFolder(tmp_path, ["txt"], existing="skip")
    assert skip.to_do(waiting) == waiting[1:]
    overwrite = OutputFolder(tmp_path, ["txt"], existing="overwrite")
    assert overwrite.to_do(waiting) == waiting
    overwrite.write(said("NEW"))
    assert (tmp_path / "x/a.txt").read_text() == "NEW\n"


def test_a_lacking_format_is_added_and_the_rest_left(tmp_path: Path) -> None:
    OutputFolder(tmp_path, ["txt"]).write(said("OLD"))
    both = OutputFolder(tmp_path, ["txt", "trn"], existing="skip")
    assert len(both.to_do([Recording("a.wav", "x/a")])) == 1
    both.write(said("NEW"))
    assert (tmp_path / "x/a.txt").read_text() == "OLD\n"
    assert (tmp_path / "x/a.trn").read_text() == "NEW (x/a)\n"


def test_half_a_file_is_never_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(self: Path, text: str, **_: object) -> int:
        with open(self, "w") as stream:
            stream.write(text[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(outputs.Path, "write_text", full_disk)
    with pytest.raises(OSError, match="No space"):
        OutputFolder(tmp_path, ["txt"]).write(said("AB"))
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["../b", "x/../../b", "/b", ".", "a\0b"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    output = OutputFolder(tmp_path / "out", ["txt"], existing="overwrite")
    for use in (
        lambda: output.to_do([Recording("a.wav", name)]),
        lambda: output.write(said("AB", name)),
    ):
        with pytest.raises(OutputError, match="no name for a file"):
            use()
    assert files(tmp_path) == []
