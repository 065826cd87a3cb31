"""train-lm, export --lm, tune-decoder and transcribe, one after the other."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
import soundfile

from mala_asr.cli.main import main
from mala_asr.inference.model_folder import (
    ModelFolderError,
    load_model_folder,
    save_model_folder,
)
from mala_asr.inference.pretrained import PRETRAINED
from tests.tones import ToneModel, tones

pytest.importorskip("flashlight.lib.text")

# What is said is never "BA"; the sound alone cannot tell it from "CA".
RATE = 14000
TEXTS = ["CA AB", "AB CA", "CA CA", "AB AB", "CA", "AB"] * 4


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts to train on and a manifest of slow tones to tune on."""
    folder = tmp_path_factory.mktemp("corpus")
    packed = gzip.compress("\n".join(TEXTS).encode())
    (folder / "text.txt.gz").write_bytes(packed)
    (folder / "heldout.txt").write_text("CA AB CA\nAB BA\n")
    lines = ["ID,duration,wav,spk_id,wrd"]
    for number, text in enumerate(TEXTS[:4]):
        # Played too slow, so that the words are the model's own.
        path = folder / f"{number}.wav"
        soundfile.write(path, tones(text).numpy(), RATE)
        seconds = soundfile.info(path).duration
        lines.append(f"{number},{seconds},{path},a,{text}")
    (folder / "dev.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def lm(corpus: Path) -> Path:
    command = ["train-lm", str(corpus / "text.txt.gz"), "--order", "2"]
    command += ["--heldout", str(corpus / "heldout.txt")]
    assert main([*command, "-o", str(corpus / "lm")]) == 0
    return corpus / "lm" / "word.bin"


@pytest.fixture
def model(tone_model: ToneModel, lm: Path, tmp_path: Path) -> Path:
    return save_model_folder(
        tmp_path / "model",
        tone_model.model,
        tone_model.tokenizer_path,
        facts={"decoding": {"decoder": "ctc_beam"}},
        lm=lm,
    )


def test_train_lm_prints_path_and_figures(
    corpus: Path,
    tone_model: ToneModel,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    common = ["train-lm", str(corpus / "text.txt.gz"), "--order", "2"]
    common += ["--heldout", str(corpus / "heldout.txt"), "-o", str(tmp_path)]
    assert main(common) == 0
    path, figures = capsys.readouterr().out.splitlines()
    assert path == str(tmp_path / "word.bin")
    assert figures.startswith("held out: perplexity ")
    assert figures.endswith("; 20.00 % out of vocabulary (1 of 5 words)")
    tokenizer = ["--tokenizer", str(tone_model.tokenizer_path)]
    assert main([*common, "--unit", "piece", *tokenizer]) == 0
    assert "(0 of 15 pieces)" in capsys.readouterr().out
    for name in ("word.arpa", "word.json", "piece.arpa", "piece.bin"):
        assert (tmp_path / name).is_file()
    assert main([*common, "--unit", "piece"]) == 2
    assert main([*common, *tokenizer]) == 2
    assert capsys.readouterr().err.count("go together") == 2


def test_a_folder_decodes_with_its_language_model(
    model: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = load_model_folder(model).decoding({})
    assert options.lm == str(model / "lm.bin")
    audio = [str(corpus / f"{number}.wav") for number in range(4)]
    texts = {}
    for name, flags in {
        "own": [],
        "none": ["--lm", "none"],
        "greedy": ["--decoder", "ctc_greedy"],
        "rescore": ["--decoder", "rescore", "--n-best", "5"],
        "given": ["--lm", str(corpus / "lm" / "word.arpa")],
        "heavy": ["--lm-weight", "9", "--word-score", "-9"],
    }.items():
        command = ["transcribe", "--model", str(model), "--device", "cpu"]
        assert main([*command, *flags, *audio]) == 0
        out = capsys.readouterr().out
        texts[name] = [line.split("\t")[1] for line in out.splitlines()]
    words = {word for text in texts["own"] for word in text.split()}
    assert words <= {"CA", "AB"}
    assert texts["own"] == texts["given"]
    assert texts["none"] != texts["own"]
    assert texts["heavy"] != texts["own"]


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--decoder", "joint", "--lm-weight", "1"], "joint has no lm_weight"),
        (["--lm", "none", "--lm-weight", "1"], "without a language model"),
        (["--lm", "gone.bin"], "no language model gone.bin"),
        (["--ctc-weight", "0.3"], "ctc_beam has no ctc_weight"),
    ],
)
def test_options_that_would_do_nothing(
    model: Path,
    corpus: Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    message: str,
) -> None:
    command = ["transcribe", "--model", str(model), "--device", "cpu"]
    assert main([*command, *flags, str(corpus / "0.wav")]) == 1
    out, err = capsys.readouterr()
    assert out == "" and message in err and err.count("\n") == 1


def test_tuning_prints_a_table_and_keeps_the_best(
    model: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune-decoder", str(corpus / "dev.csv"), "--model", str(model)]
    command += ["--device", "cpu", "--lm-weights", "0.1", "0.6"]
    command += ["--word-scores", "-9", "0"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "lm_weight\tword_score\tWER\tsub\tdel\tins"
    rows = [line.split("\t") for line in lines[1:-1]]
    assert [row[:2] for row in rows] == [
        ["0.1", "-9.0"],
        ["0.1", "0.0"],
        ["0.6", "-9.0"],
        ["0.6", "0.0"],
    ]
    rates = [float(row[2]) for row in rows]
    best = rows[rates.index(min(rates))]
    assert lines[-1] == (
        f"best: --decoder ctc_beam --lm-weight {best[0]} --word-score {best[1]}"
    )
    assert load_model_folder(model).config["decoding"] == {
        "decoder": "ctc_beam"
    }
    assert main([*command, "--write"]) == 0
    loaded = load_model_folder(model)
    assert loaded.config["decoding"] == {
        "decoder": "ctc_beam",
        "lm_weight": float(best[0]),
        "word_score": float(best[1]),
    }
    assert loaded.decoding({}).lm == str(model / "lm.bin")


def test_a_foreign_language_model_is_not_written(
    model: Path, lm: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune-decoder", str(corpus / "dev.csv"), "--model", str(model)]
    assert main([*command, "--lm", str(lm), "--write"]) == 2
    assert "mala-asr export --lm" in capsys.readouterr().err


def test_the_installed_package_is_not_written_to(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune-decoder", str(corpus / "dev.csv"), "--write"]
    assert main([*command, "--model", PRETRAINED]) == 2
    assert "copy" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lm.bin", "lm.json"])
def test_a_language_model_that_was_changed_is_refused(
    model: Path, name: str
) -> None:
    with open(model / name, "ab") as file:
        file.write(b" ")
    with pytest.raises(ModelFolderError, match=f"{name} is damaged"):
        load_model_folder(model)
    (model / name).unlink()
    with pytest.raises(ModelFolderError, match=f"{name} is missing"):
        load_model_folder(model)


def test_a_folder_without_one_replaces_a_folder_with_one(
    model: Path, tone_model: ToneModel
) -> None:
    save_model_folder(model, tone_model.model, tone_model.tokenizer_path)
    assert not (model / "lm.bin").exists()
    assert load_model_folder(model).decoding({}).lm is None


def test_exported_from_a_run(
    tone_model: ToneModel,
    lm: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from speechbrain.utils.checkpoints import Checkpointer

    run = tmp_path / "run"
    checkpointer = Checkpointer(run / "save", {"model": tone_model.model})
    checkpointer.save_checkpoint(name="a", meta={"WER": 1.0})
    shutil.copy(tone_model.tokenizer_path, run / "tokenizer.model")
    for stored, kept in (
        ({"decoder": "ctc_greedy", "beam_size": 9}, {"decoder": "ctc_beam"}),
        (
            {"decoder": "rescore", "n_best": 7, "lm": "none"},
            {"decoder": "rescore", "n_best": 7},
        ),
    ):
        description = {
            "format_version": 1,
            "model": tone_model.model.config,
            "decoding": stored,
        }
        (run / "model.json").write_text(json.dumps(description))
        model = tmp_path / "exported"
        assert main(["export", str(run), str(model), "--lm", str(lm)]) == 0
        assert load_model_folder(model).config["decoding"] == kept
        assert (model / "lm.bin").read_bytes() == lm.read_bytes()
    # The language model of the run's own evaluation comes along.
    description["decoding"] = {"decoder": "ctc_beam", "lm": str(lm)}
    (run / "model.json").write_text(json.dumps(description))
    assert main(["export", str(run), str(model)]) == 0
    loaded = load_model_folder(model)
    assert loaded.decoding({}).lm == str(model / "lm.bin")
    capsys.readouterr()
