"""A folder of transcripts: one file for each recording and format."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from mala_asr.data.files import replacing
from mala_asr.errors import MalaError
from mala_asr.inference.names import folded
from mala_asr.inference.transcript import Recording, Transcript
from mala_asr.inference.writers import FORMATS, Style

# Where files are not called like their format.
_ENDINGS = {"textgrid": "TextGrid"}


class OutputError(MalaError):
    """Transcripts that may not be written where they were asked for."""


class OutputFolder:
    """Writes transcripts below a folder, each file whole or not at all.

    Arguments
    ---------
    folder : str or os.PathLike
        The folder; it is made where it is missing.
    formats : Sequence[str]
        Names in `FORMATS`.
    style : Style
        How they are written.
    existing : str
        What to do about files that are there already: ``refuse``, ``skip``
        or ``overwrite``.

    Example
    -------
    >>> from mala_asr.decoding.hypothesis import Hypothesis
    >>> from mala_asr.inference.transcript import Segment
    >>> folder = getfixture("tmp_path") / "texts"
    >>> output = OutputFolder(folder, ["txt"], existing="skip")
    >>> said = Segment(0.0, 1.0, Hypothesis("GO ON", [5], 0.0))
    >>> output.write(Transcript(Recording("a.wav", "x/a"), 1.0, [said]))
    >>> (folder / "x" / "a.txt").read_text()
    'GO ON\\n'
    >>> [r.name for r in output.to_do([Recording("a.wav", "x/a"),
    ...                                Recording("b.wav")])]
    ['b']
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        formats: Sequence[str],
        style: Style | None = None,
        existing: str = "refuse",
    ) -> None:
        self.folder = Path(folder)
        self.formats = formats
        self.style = style or Style()
        self.existing = existing

    def to_do(self, recordings: Iterable[Recording]) -> list[Recording]:
        """Find the recordings that are still to be transcribed.

        Arguments
        ---------
        recordings : Iterable[Recording]
            All recordings.

        Returns
        -------
        list[Recording]
            Those that lack some file, if files that are there are skipped;
            else all.

        Raises
        ------
        OutputError
            If there is a file that may not be overwritten, a name leads out
            of the folder, or two recordings would get into one file.
        """
        chosen = []
        seen: dict[str, Recording] = {}
        for recording in recordings:
            other = seen.setdefault(folded(recording.id), recording)
            if other is not recording:
                raise OutputError(
                    f"{other.label} and {recording.label} would be written "
                    "into one file; give them ids that differ, not in case "
                    "alone"
                )
            paths = self._paths(recording).values()
            there = [path for path in paths if path.exists()]
            if there and self.existing == "refuse":
                raise OutputError(
                    f"{there[0]} is there already; choose --skip-existing, "
                    "--overwrite or another folder"
                )
            if self.existing != "skip" or len(there) < len(paths):
                chosen.append(recording)
        return chosen

    def write(self, transcript: Transcript) -> None:
        """Write a transcript in every format.

        Arguments
        ---------
        transcript : Transcript
            The transcript.
        """
        for name, path in self._paths(transcript.recording).items():
            if self.existing == "skip" and path.exists():
                continue
            text = FORMATS[name].render(transcript, self.style)
            with replacing(path) as temporary:
                temporary.write_text(text, encoding="utf-8", newline="\n")

    def _paths(self, recording: Recording) -> dict[str, Path]:
        # Names may come from a manifest that somebody else has written.
        path = Path(recording.id)
        outside = path.is_absolute() or ".." in path.parts or not path.name
        if outside or "\0" in recording.id:
            raise OutputError(
                f"{recording.id!r} is no name for a file in {self.folder}; "
                "give the recording another id"
            )
        return {
            name: self.folder / f"{recording.id}.{_ENDINGS.get(name, name)}"
            for name in self.formats
        }
