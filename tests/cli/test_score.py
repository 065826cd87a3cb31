"""`mala-asr score REF HYP`; each option has a test that it changes something.

What the numbers should be is tested in tests/scoring.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mala_asr.cli.main import main

SAID = "the cat sat (ann-1)\nhello (ann-2)\none two (ben-1)\n"
HEARD = "hello you (ann-2)\nthe bat sat (ann-1)\none two (ben-1)\n"

Run = tuple[int, str, str]


class Command:
    """`mala-asr score` in a folder, with its status, stdout and stderr."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]):
        self.folder = folder
        self._capsys = capsys
        self.write("ref.trn", SAID)
        self.write("hyp.trn", HEARD)

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def __call__(
        self, *options: str, ref: str = "ref.trn", hyp: str = "hyp.trn"
    ) -> Run:
        files = str(self.folder / ref), str(self.folder / hyp)
        status = main(["score", *files, *options])
        return status, *self._capsys.readouterr()

    def out(self, *options: str, **files: str) -> str:
        """Its stdout, where it succeeds."""
        status, out, _ = self(*options, **files)
        assert status == 0
        return out

    def usage_error(self, *options: str) -> str:
        """What it says of wrong usage."""
        with pytest.raises(SystemExit) as stopped:
            self(*options)
        assert stopped.value.code == 2
        return self._capsys.readouterr().err


@pytest.fixture
def score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


def test_kaldis_line_comes_first(score: Command) -> None:
    status, out, err = score()
    assert status == 0
    assert out.startswith(
        "%WER 33.33 [ 2 / 6, 1 ins, 0 del, 1 sub ]\n"
        "%SER 66.67 [ 2 / 3 ]\n"
        "Scored 3 sentences, 0 not present in hyp.\n"
    )
    assert "By speaker" not in out
    assert "Most frequent" not in out
    assert err == "mala-asr: format: trn\n"


def test_the_same_command_prints_the_same(score: Command) -> None:
    assert score("--per-speaker") == score("--per-speaker")


def test_format(score: Command) -> None:
    status, out, err = score("--format", "plain")
    assert status == 0
    # Line by line, with the ids as words.
    assert out.startswith("%WER 88.89 [ 8 / 9,")
    assert err == ""


def test_hyp_format(score: Command) -> None:
    score.write("hyp.txt", "1 hello you\n2 x\n")
    score.write("ref.txt", "hello (1)\nx (2)\n")
    options = ("--format", "trn", "--hyp-format", "kaldi")
    out = score.out(*options, ref="ref.txt", hyp="hyp.txt")
    assert out.startswith("%WER 50.00 [ 1 / 2, 1 ins,")


def test_other_formats_pair_by_id(score: Command) -> None:
    score.write("ref.csv", "ID,wrd\nann-1,the cat sat\nann-2,hello\nben-1,x\n")
    status, out, err = score(ref="ref.csv")
    assert out.startswith("%WER 80.00 [ 4 / 5,")
    assert err == "mala-asr: format: csv, trn\n"


def test_lines_and_ids_do_not_pair(score: Command) -> None:
    score.write("hyp.txt", "the bat sat\nhello you\n")
    status, out, err = score(hyp="hyp.txt")
    assert (status, out) == (1, "")
    assert "looks like trn" in err and "like plain" in err
    assert err.count("\n") == 1


def test_segments_and_times(score: Command) -> None:
    score.write("ref.stm", "rec A ann 0.0 2.0 <clean> one two\n")
    score.write("hyp.ctm", "rec A 0.5 0.2 one\nrec A 3.0 0.2 three\n")
    out = score.out("--by", "set", ref="ref.stm", hyp="hyp.ctm")
    assert out.startswith("%WER 50.00 [ 1 / 2, 0 ins, 0 del, 1 sub ]\n")
    assert "Note: 1 recognized words lie in no segment;" in out
    assert "\nclean " in out


def test_fields(score: Command) -> None:
    lines = [
        {"id": 1, "name": "u", "text": "a b", "hyp": "a b", "raw": "a", "h": ""}
    ]
    score.write("m.jsonl", "\n".join(map(json.dumps, lines)))
    files = {"ref": "m.jsonl", "hyp": "m.jsonl"}
    assert "[ 0 / 2," in score.out(**files)
    assert "[ 1 / 1," in score.out("--ref-field", "raw", **files)
    assert "[ 2 / 2," in score.out("--hyp-field", "h", **files)
    record = score.out("--id-field", "name", "--json", "--align", **files)
    assert json.loads(record)["aligned"][0]["id"] == "u"
    status, _, err = score("--id-field", "nobody", **files)
    assert status == 1
    assert "no field of id (nobody)" in err


@pytest.mark.parametrize("side", ["id", "ref", "hyp"])
def test_fields_of_files_without_fields(score: Command, side: str) -> None:
    status, out, err = score(f"--{side}-field", "text")
    assert (status, out) == (1, "")
    assert f"--{side}-field is for JSON lines and CSV" in err
    assert "only trn" in err


@pytest.mark.parametrize(
    "missing, begins",
    [
        ("empty", "%WER 66.67 [ 4 / 6,"),
        ("skip", "%WER 33.33 [ 1 / 3, 0 ins, 0 del, 1 sub ]"),
    ],
)
def test_missing(score: Command, missing: str, begins: str) -> None:
    score.write("hyp.trn", "the bat sat (ann-1)\n")
    status, out, err = score()
    assert (status, out) == (1, "")
    assert "2 of the utterances have a reference" in err and "'ann-2'" in err
    out = score.out("--missing", missing)
    assert out.startswith(begins)
    assert " sentences, 2 not present in hyp." in out


@pytest.mark.parametrize(
    "name, after", [("basic", "[ 1 / 4,"), ("english", "[ 0 / 4,")]
)
def test_normalize(score: Command, name: str, after: str) -> None:
    if name == "english":
        pytest.importorskip("whisper_normalizer")
    score.write("ref.trn", "It's the colour, Ann. (u-1)\n")
    score.write("hyp.trn", "it's the color ann (u-1)\n")
    assert "[ 3 / 4," in score.out().partition("\n")[0]
    out = score.out("--normalize", name)
    words = after.replace("4", "5") if name == "english" else after
    assert words in out.partition("\n")[0]
    assert f"Normalization: {name} " in out
    assert "Before normalization: %WER 75.00 [ 3 / 4," in out


def test_compare(score: Command) -> None:
    other = score.write("two.trn", SAID)
    out = score.out("--compare", other)
    assert "Second system, compared with the first:\n%WER 0.00" in out
    assert (
        "Paired bootstrap over 3 utterances (few, so too narrow): difference -"
        in out
    )
    assert "MAPSSWE" in out
    assert "MAPSSWE" not in score.out()


def test_ci_and_seed(score: Command) -> None:
    # Enough utterances for other draws to be seen in two decimals.
    said = [f"a b c d e ({n % 5}-{n})\n" for n in range(97)]
    heard = [f"{'a b c d e'[: n % 10]} ({n % 5}-{n})\n" for n in range(97)]
    score.write("ref.trn", "".join(said))
    score.write("hyp.trn", "".join(heard))
    first = score.out()
    assert "; bootstrap, 1000 resamples, seed 0" in first
    for options in (("--ci", "200"), ("--seed", "7")):
        assert confidence(score.out(*options)) != confidence(first)
    assert "confidence" not in score.out("--ci", "0")


def confidence(out: str) -> str:
    line = next(line for line in out.splitlines() if "confidence" in line)
    return line.partition("; bootstrap")[0]


def test_per_speaker(score: Command) -> None:
    out = score.out("--per-speaker")
    assert "By speaker:\nspeaker  sentences" in out
    assert "\nann              2      4  50.00" in out


def test_speaker_pattern(score: Command) -> None:
    out = score.out("--per-speaker", r"--speaker-pattern=-(\d)")
    assert "\nann" not in out
    assert "\n1                2      5   20.00" in out
    assert "not a regular expression" in score.usage_error(
        "--speaker-pattern", "("
    )


def test_by_duration_and_set(score: Command) -> None:
    score.write(
        "ref.jsonl",
        '{"id": "ann-1", "text": "the cat sat", "duration": 3, "set": "a"}\n'
        '{"id": "ann-2", "text": "hello", "duration": 1, "set": "b"}\n'
        '{"id": "ben-1", "text": "one two", "duration": 4, "set": "b"}\n',
    )
    out = score.out("--by", "duration", "--by", "set", ref="ref.jsonl")
    assert "By duration:\n" in out and "By set:\n" in out
    assert "\n0-2 s             1      1  100.00" in out
    assert "\nb            2      3  33.33" in out
    status, out, err = score("--by", "duration")
    assert (status, out) == (1, "")
    assert "nothing tells the duration of the utterances; " in err


def test_align(score: Command) -> None:
    out = score.out("--align")
    assert "the ; cat ; sat\n =  ;  S  ;  = \nthe ; bat ; sat\n" in out
    assert "ALIGNMENTS" not in score.out()


def test_top(score: Command) -> None:
    out = score.out("--top", "1")
    assert "\nann-2, %WER 100.00" in out
    assert "\nann-1, " not in out
    assert "\nann-1, " in score.out("--top", "2")
    assert "\ncat  bat  1\n" in out


def test_json(score: Command) -> None:
    status, out, err = score("--json", "--per-speaker", "--top", "1")
    record = json.loads(out)
    assert record["WER"] == pytest.approx(100 / 3)
    assert [g["name"] for g in record["groups"]["speaker"]] == ["ann", "ben"]
    assert len(record["worst"]) == 1
    assert err == "mala-asr: format: trn\n"


def test_html(score: Command) -> None:
    path = score.folder / "report.html"
    out = score.out("--html", str(path))
    assert out == score.out()
    text = path.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "%WER 33.33 [ 2 / 6," in text
    status, _, err = score("--html", str(score.folder / "none" / "x.html"))
    assert status == 1
    assert "No such file" in err and err.count("\n") == 2


def test_trn_out(score: Command) -> None:
    folder = score.folder / "trn"
    other = score.write("two.trn", SAID.replace("cat", "CAT!"))
    options = ("--normalize", "basic", "--compare", other)
    score.out("--trn-out", str(folder), *options)
    assert (folder / "ref.trn").read_text() == SAID
    assert (folder / "hyp.trn").read_text().startswith("the bat sat (ann-1)\n")
    assert (folder / "hyp2.trn").read_text().startswith("the cat sat (ann-1)\n")


def test_fail_above(score: Command) -> None:
    assert score("--fail-above", "33.4") == score()
    status, out, err = score("--fail-above", "33.3")
    assert status == 1
    assert out == score.out()
    assert err.endswith(
        "mala-asr: the WER is 33.33, and --fail-above allows 33.3\n"
    )
    assert "not a rate" in score.usage_error("--fail-above", "-1")


def test_fail_above_without_words(score: Command) -> None:
    score.write("ref.trn", "(a-1)\n")
    score.write("hyp.trn", "oh (a-1)\n")
    assert score("--fail-above", "50")[0] == 1
    score.write("hyp.trn", "(a-1)\n")
    assert score("--fail-above", "50")[0] == 0


@pytest.mark.parametrize(
    "options",
    [
        ("--ci", "-1"),
        ("--ci", "x"),
        ("--seed", "1.5"),
        ("--top", "0"),
        ("--by", "speaker"),
        ("--missing", "maybe"),
        ("--normalize", "french"),
        ("--format", "doc"),
        ("--fail-above", "nan"),
    ],
)
def test_wrong_usage(score: Command, options: tuple[str, str]) -> None:
    assert options[0] in score.usage_error(*options)


def test_a_repeated_id_is_named(score: Command) -> None:
    score.write("hyp.trn", HEARD + "again (ann-1)\n")
    status, out, err = score()
    assert (status, out) == (1, "")
    assert "line 4: id 'ann-1' a second time" in err


def test_files_of_any_script_and_line_end(score: Command) -> None:
    score.folder.joinpath("ref.trn").write_bytes(
        "\ufeffüber 日本 (ü-1)\r\n(b-1)\r\na (c-1)\r\n".encode()
    )
    score.folder.joinpath("hyp.trn").write_bytes(
        "über 日 (ü-1)\n(b-1)\ni (c-1)\n".encode()
    )
    assert score.out().startswith("%WER 66.67 [ 2 / 3, 0 ins, 0 del, 2 sub ]")


def test_needs_no_torch(score: Command) -> None:
    """And so starts at once."""
    program = (
        "import sys\n"
        "sys.modules.update(torch=None, speechbrain=None)\n"
        "from mala_asr.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    files = [str(score.folder / name) for name in ("ref.trn", "hyp.trn")]
    done = subprocess.run(
        [sys.executable, "-c", program, "score", *files],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, score.out())
