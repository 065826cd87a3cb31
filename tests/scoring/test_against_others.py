"""The counts and tests of other scorers on the same pairs.

sclite and sc_stats are NIST's (Debian: package sctk); where they are not
installed, their tests are skipped.
"""

import re
import shutil
import subprocess
from pathlib import Path

import kaldialign
import pytest

from mala_asr.scoring import (
    WerReport,
    analyze,
    read_transcripts,
    score,
    write_trn,
)
from mala_asr.scoring.significance import matched_pairs
from tests.scoring.random_pairs import random_pairs
from tests.scoring.test_nist import CTM, STM

# Where Debian puts them, off the path.
SCTK = "/usr/lib/sctk/bin"
SCLITE = shutil.which("sclite") or shutil.which("sclite", path=SCTK)
SC_STATS = shutil.which("sc_stats") or shutil.which("sc_stats", path=SCTK)
needs_sctk = pytest.mark.skipif(
    SCLITE is None or SC_STATS is None,
    reason="sclite and sc_stats are not installed",
)
COUNTS = re.compile(
    r"^id: \((\S+)\)$.*?^Scores: \(#C #S #D #I\) (\d+) (\d+) (\d+) (\d+)$",
    re.MULTILINE | re.DOTALL,
)


def sclite(folder: Path, *arguments: str) -> str:
    """What sclite prints; -s: upper and lower case differ."""
    done = subprocess.run(
        [str(SCLITE), *arguments, "-s", "-e", "utf-8", "-f", "0"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def sclite_counts(printed: str) -> dict[str, list[int]]:
    """Correct, substituted, deleted and inserted words by utterance."""
    return {
        found[0]: [int(count) for count in found[1:]]
        for found in COUNTS.findall(printed)
    }


def write_files(folder: Path, **sides: dict[str, str]) -> None:
    for name, texts in sides.items():
        write_trn(folder / f"{name}.trn", texts)


def test_kaldialign_finds_as_many_errors() -> None:
    """And divides them otherwise: of alignments alike it prefers another."""
    said, heard = random_pairs(1000, seed=1)
    split_otherwise = 0
    for utterance in score(said, heard).utterances:
        theirs = kaldialign.edit_distance(
            utterance.reference, utterance.hypothesis
        )
        assert theirs["total"] == utterance.errors
        # Any alignment inserts as many words more than it deletes.
        assert (
            theirs["ins"] - theirs["del"]
            == utterance.insertions - utterance.deletions
        )
        split_otherwise += theirs["sub"] != utterance.substitutions
    assert 0 < split_otherwise < 100


def test_sclites_costs_only_find_more_errors() -> None:
    """As kaldialign imitates them: 4 a substitution, 3 the others."""
    said, heard = random_pairs(1000, seed=1)
    more = 0
    for utterance in score(said, heard).utterances:
        theirs = kaldialign.edit_distance(
            utterance.reference, utterance.hypothesis, sclite_mode=True
        )
        assert theirs["total"] >= utterance.errors
        more += theirs["total"] - utterance.errors
    assert more <= 10


@needs_sctk
def test_sclite(tmp_path: Path) -> None:
    said, heard = random_pairs(1000, seed=1)
    write_files(tmp_path, ref=said, hyp=heard)
    printed = sclite(
        tmp_path,
        *("-r", "ref.trn", "trn", "-h", "hyp.trn", "trn"),
        *("-i", "spu_id", "-o", "pralign", "stdout"),
    )
    theirs = sclite_counts(printed)
    report = score(said, heard)
    assert len(theirs) == len(report.utterances)
    found = 0
    for utterance in report.utterances:
        correct, *errors = theirs[utterance.id]
        assert sum(errors) >= utterance.errors
        assert correct + errors[0] + errors[1] == utterance.words
        found += sum(errors)
    assert found - report.errors <= 10


@needs_sctk
def test_sclite_on_times(tmp_path: Path) -> None:
    """The same words in the same segments, those of the gaps included."""
    (tmp_path / "ref.stm").write_text(STM)
    # sclite takes words in the order of the file, which must be that of time.
    in_time = sorted(CTM.splitlines(), key=lambda line: line.split()[1:3])
    (tmp_path / "hyp.ctm").write_text("\n".join(in_time) + "\n")
    printed = sclite(
        tmp_path,
        *("-r", "ref.stm", "stm", "-h", "hyp.ctm", "ctm"),
        *("-o", "pralign", "stdout"),
    )
    found = analyze(
        read_transcripts(tmp_path / "ref.stm"),
        read_transcripts(tmp_path / "hyp.ctm", segments=tmp_path / "ref.stm"),
    )
    # sclite puts the segments in the order of their speakers.
    ours = [
        [u.hits, u.substitutions, u.deletions, u.insertions]
        for u in found.report.utterances
    ]
    assert sorted(sclite_counts(printed).values()) == sorted(ours)


@needs_sctk
def test_sc_stats_finds_the_same_matched_pairs(tmp_path: Path) -> None:
    said = distinct_words()
    sides = {
        name: {
            key: " ".join(
                word
                for number, word in enumerate(text.split())
                if (number * 7 + int(key.split("-")[1])) % every
            )
            for key, text in said.items()
        }
        for name, every in (("one", 11), ("two", 8))
    }
    write_files(tmp_path, ref=said, **sides)
    sgml = sclite(
        tmp_path,
        *("-r", "ref.trn", "trn", "-i", "spu_id", "-o", "sgml", "stdout"),
        *("-h", "one.trn", "trn", "one", "-h", "two.trn", "trn", "two"),
    )
    done = subprocess.run(
        [str(SC_STATS), "-p", "-t", "mapsswe", "-v", "-n", "-"],
        input=sgml,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = re.search(
        r"MTCH_PR_RESULTS .*\(# segs: (\d+)\).*\(mean: (\S+)\) "
        r"\(std dev: (\S+)\) \(Z Stat: (\S+)\)",
        done.stdout,
    )
    assert theirs is not None
    reports: list[WerReport] = [score(said, side) for side in sides.values()]
    ours = matched_pairs(*(report.utterances for report in reports))
    assert ours.segments == int(theirs[1]) > 50
    # It subtracts the second from the first, and prints three decimals.
    assert -ours.mean == pytest.approx(float(theirs[2]), abs=6e-4)
    assert ours.deviation == pytest.approx(float(theirs[3]), abs=6e-4)
    assert ours.z is not None
    assert -ours.z == pytest.approx(float(theirs[4]), abs=6e-3)


def distinct_words() -> dict[str, str]:
    """Sentences of words that differ: one best alignment for every scorer."""
    return {
        f"spk-{number}": " ".join(f"w{place}x" for place in range(number % 30))
        for number in range(1, 60)
    }
