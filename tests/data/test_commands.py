"""The data commands do what their functions do, and print what they made."""

import subprocess
import sys
from pathlib import Path

import pytest

from mala_asr.cli.main import main
from mala_asr.data.manifest import read_manifest
from mala_asr.data.tokenizer import load_tokenizer
from tests.data.corpora import write_split

RECIPES = Path(__file__).parents[2] / "recipes" / "LibriSpeech"
WORDS = {"1-2-0000": "GO ON", "1-2-0001": "GO AWAY"}


@pytest.fixture
def corpus(tmp_path):
    for split in ("dev", "train"):
        write_split(tmp_path / "LibriSpeech" / split, WORDS)
    return tmp_path


@pytest.mark.parametrize(
    "options, splits",
    [([], ["dev", "train"]), (["--splits", "train"], ["train"])],
)
def test_prepare_then_tokenizer(corpus, capsys, options, splits):
    out = corpus / "csv"
    assert main(["prepare", str(corpus), str(out), *options]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [str(out / f"{split}.csv") for split in splits]
    assert {u.id: u.wrd for u in read_manifest(printed[-1])} == WORDS

    command = ["tokenizer", printed[-1], "-o", str(out), "--kind", "char"]
    assert main(command) == 0
    (path,) = capsys.readouterr().out.splitlines()
    assert (
        load_tokenizer(path).decode(load_tokenizer(path).encode("WON")) == "WON"
    )


def test_synthesize(tmp_path, capsys):
    command = ["synthesize", str(tmp_path), "--minutes", "0.5"]
    assert main([*command, "--seed", "3", "--workers", "1"]) == 0
    root = Path(capsys.readouterr().out.strip())
    assert root == tmp_path / "LibriSpeech"
    assert len(list(root.rglob("*.flac"))) >= 16
    assert main([*command, "--seed", "4"]) == 1
    assert "other settings" in capsys.readouterr().err


def test_download_passes_its_options_on(tmp_path, monkeypatch, capsys):
    asked = {}

    def download_corpus(name, splits, dest, **options):
        asked.update(options, name=name, splits=splits, dest=dest)
        return Path(dest) / "LibriSpeech"

    monkeypatch.setattr(
        "mala_asr.data.download.download_corpus", download_corpus
    )
    command = ["download", "librispeech", "--splits", "dev-clean,test-clean"]
    command += ["--base-url", "http://mirror", "--keep-archives", "there"]
    assert main(command) == 0
    assert capsys.readouterr().out == "there/LibriSpeech\n"
    assert asked == {
        "name": "librispeech",
        "splits": ["dev-clean", "test-clean"],
        "dest": "there",
        "base_url": "http://mirror",
        "keep_archives": True,
    }


@pytest.mark.parametrize(
    "command",
    [
        ["download", "libri", "there"],
        ["download", "librispeech"],
        ["prepare", "data"],
        ["prepare", "data", "csv", "--splits", ","],
        ["prepare", "data", "csv", "--workers", "0"],
        ["tokenizer", "text.txt"],
        ["tokenizer", "text.txt", "-o", "x", "--kind", "word"],
        ["synthesize", "there", "--minutes", "-1"],
        ["synthesize", "there", "--minutes", "nan"],
    ],
)
def test_wrong_usage_is_status_2(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main(command)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command, fault",
    [
        (["prepare", "no-such", "csv"], "no such data folder: no-such"),
        (["tokenizer", "no-such.csv", "-o", "x"], "no-such.csv"),
        (["download", "librispeech", "x", "--splits", "y"], "no split y"),
    ],
)
def test_an_expected_failure_is_one_line_and_status_1(command, fault, capsys):
    assert main(command) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mala-asr: error: ") and fault in line


@pytest.mark.parametrize("script", ["prepare.py", "tokenizer.py"])
def test_the_recipe_scripts_are_the_commands(script):
    done = subprocess.run(
        [sys.executable, RECIPES / script, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"usage: mala-asr {script.removesuffix('.py')}" in done.stdout
