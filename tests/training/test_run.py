"""Whole runs on a corpus of tones: results, resuming, and mistakes."""

import json
import logging
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jiwer
import pytest
import torch

from mala_asr.data.manifest import read_manifest
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.inference.export import export_run
from mala_asr.inference.transcriber import Transcriber
from mala_asr.models.checkpoints import load_averaged
from mala_asr.training import train
from mala_asr.training.brain import ASRBrain
from mala_asr.training.evaluate import evaluate_set
from mala_asr.training.run_folder import sole_writer
from tests.training.tone_corpus import SPLITS, arguments, make_tone_corpus

CONFIG = "mini_librispeech_mala"


@pytest.fixture(scope="module", autouse=True)
def process_state() -> Iterator[None]:
    """Give back what SpeechBrain sets for a whole process."""
    hook, root = sys.excepthook, logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    sys.excepthook = hook
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tone_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def straight(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("runs") / "straight"
    assert train.main([CONFIG, *arguments(corpus, folder)]) == 0
    return folder


def _newest_weights(folder: Path) -> dict[str, torch.Tensor]:
    newest = max((folder / "save").glob("CKPT+*"), key=lambda p: p.name)
    return torch.load(newest / "model.ckpt", weights_only=True)


def _contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (
            path.read_bytes(),
            path.stat().st_mtime_ns,
        )
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_run_leaves_what_it_should(straight: Path) -> None:
    for name in (
        "hyperparams.yaml",
        "env.log",
        "log.txt",
        "train_log.txt",
        "learning_curve.png",
        "model.json",
        "tokenizer.model",
        "wer_tone-test.txt",
        "ref_tone-test.trn",
        "hyp_tone-test.trn",
        "results.json",
    ):
        assert (straight / name).stat().st_size > 0, name
    lines = (straight / "train_log.txt").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["epoch: 1", "epoch: 2"]
    log = (straight / "log.txt").read_text()
    assert "mala_asr.training.train - INFO - " in log
    assert "font_manager" not in log
    training = json.loads((straight / "model.json").read_text())["training"]
    assert training["data"] == ["tone-train"]
    assert 0 < training["hours"] < 0.1


def test_no_test_utterance_is_left_out(straight: Path) -> None:
    """Not even one whose text is longer than its speech."""
    results = json.loads((straight / "results.json").read_text())["tone-test"]
    assert results["utterances"] == SPLITS["tone-test"]

    said = {
        u.id: u.wrd
        for u in read_manifest(straight / "manifests" / "tone-test.csv")
    }
    lines = (straight / "hyp_tone-test.trn").read_text().splitlines()
    found = {
        line[line.rindex("(") + 1 : -1]: line[: line.rindex("(")].strip()
        for line in lines
    }
    assert found.keys() == said.keys()
    judged = jiwer.process_words(
        list(said.values()), [found[name] for name in said]
    )
    for key in ("substitutions", "deletions", "insertions"):
        assert results[key] == getattr(judged, key)
    assert results["WER"] == pytest.approx(100 * judged.wer)


def test_evaluation_is_of_the_average(
    corpus: Path, straight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated: dict[str, torch.Tensor] = {}

    def recording(recognizer: Recognizer, *args: Any, **kwargs: Any) -> Any:
        evaluated.update(recognizer.model.state_dict())
        assert not recognizer.model.training
        return evaluate_set(recognizer, *args, **kwargs)

    monkeypatch.setattr(train, "evaluate_set", recording)
    train.main([CONFIG, "--test_only", *arguments(corpus, straight)])

    weights, names = load_averaged(straight / "save", 2)
    assert len(names) == 2
    results = json.loads((straight / "results.json").read_text())["tone-test"]
    assert results["checkpoints"] == names
    states = [
        torch.load(straight / "save" / n / "model.ckpt", weights_only=True)
        for n in names
    ]
    key = "ctc_head.weight"
    assert not torch.equal(states[0][key], states[1][key])
    assert torch.allclose(weights[key], (states[0][key] + states[1][key]) / 2)
    for name, value in weights.items():
        assert torch.equal(evaluated[name], value), name


def test_the_exported_model_says_what_was_evaluated(straight: Path) -> None:
    model = export_run(straight, straight.parent / "model")
    utterances = read_manifest(straight / "manifests" / "tone-test.csv")
    transcripts = Transcriber(model).transcribe([u.wav for u in utterances])
    hypotheses = (straight / "hyp_tone-test.trn").read_text().splitlines()
    words = {
        line[line.rindex("(") + 1 : -1]: line[: line.rindex("(")].split()
        for line in hypotheses
    }
    for utterance, transcript in zip(utterances, transcripts, strict=True):
        assert transcript.text.split() == words[utterance.id]


def test_evaluation_and_export_only_read(
    corpus: Path, straight: Path, tmp_path: Path
) -> None:
    before = _contents(straight / "save")
    code = train.main([CONFIG, "--test_only", *arguments(corpus, straight)])
    export_run(straight, tmp_path / "model")
    assert code == 0
    assert _contents(straight / "save") == before


def test_a_run_goes_on_as_if_nothing_had_happened(
    corpus: Path,
    straight: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ctrl-C, an evaluation and an export in between change nothing."""
    folder = tmp_path / "run"
    options = arguments(corpus, folder)
    fit_batch = ASRBrain.fit_batch
    steps = 0

    def stopping(self: ASRBrain, batch):
        nonlocal steps
        steps += 1
        if self.optimizer_step > self.batches_per_epoch:  # in epoch 2
            raise KeyboardInterrupt
        return fit_batch(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(ASRBrain, "fit_batch", stopping)
        assert train.main([CONFIG, *options]) == 130
    assert "resumes" in capsys.readouterr().err
    assert not (folder / "results.json").exists()

    assert train.main([CONFIG, "--test_only", *options]) == 0
    export_run(folder, tmp_path / "model")
    assert train.main([CONFIG, *options]) == 0

    expected = _newest_weights(straight)
    for name, value in _newest_weights(folder).items():
        assert torch.equal(value, expected[name]), name
    hypotheses = "hyp_tone-test.trn"
    assert (folder / hypotheses).read_text() == (
        straight / hypotheses
    ).read_text()


def test_a_limit_of_steps_ends_the_training(
    corpus: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    options = arguments(corpus, folder, optimizer_step_limit="1")
    assert train.main([CONFIG, *options]) == 0
    state = (folder / "train_log.txt").read_text()
    assert len(state.splitlines()) == 1


def test_a_finished_run_is_not_trained_again(
    corpus: Path, straight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(train, "fit", fail)
    assert train.main([CONFIG, *arguments(corpus, straight)]) == 0


@pytest.mark.parametrize("cache", ["disk", "none"])
def test_where_features_come_from_changes_little(
    corpus: Path, straight: Path, tmp_path: Path, cache: str
) -> None:
    options = arguments(
        corpus, tmp_path / "run", feature_cache=cache, number_of_epochs="1"
    )
    assert train.main([CONFIG, *options]) == 0

    def first_loss(folder: Path) -> float:
        curve = (folder / "learning_curve.jsonl").read_text()
        return float(json.loads(curve.splitlines()[0])["train_loss"])

    assert first_loss(tmp_path / "run") == pytest.approx(
        first_loss(straight), rel=0.05
    )


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"bacth_seconds": "9"}, "did you mean batch_seconds"),
        ({"number_of_epochs": "many"}, "number_of_epochs is 'many'"),
        ({"data_folder": "/nowhere"}, "no such data folder: /nowhere"),
        ({"train_splits": "[train-x]"}, "train-x"),
        ({"train_splits": "[]"}, "train_splits is empty"),
        ({"optimizer_step_limit": "two"}, "optimizer_step_limit is two; give"),
        ({"number_of_epochs": "1.5"}, "number_of_epochs is 1.5; give"),
        ({"output_folder": "2024"}, "output_folder is 2024"),
        ({"grad_accumulation_factor": "0"}, "accumulation_factor is 0; give"),
        ({"jit_module_keys": "model"}, "leave --jit out"),
        ({"log_config": "log.yaml"}, "--log_config is not read here"),
        ({"device": "warp"}, "device 'warp' is not available"),
        ({"batch_seconds": "-3"}, "batch_seconds is -3; give"),
        ({"decoder": "magic"}, "unknown decoder 'magic'"),
        ({"output_folder": __file__}, "File exists; name another place"),
        ({"precision": "bf16"}, "is for GPUs"),
        ({"feature_cache": "tape"}, "memory, disk, none"),
        ({"model": "{frontend: conv9}"}, "conv9"),
        ({"model": "{d_modle: 64}"}, "d_modle"),
        ({"attention": "sofmax"}, "sofmax"),
    ],
)
def test_a_mistake_is_one_line(
    corpus: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    message: str,
) -> None:
    options = arguments(corpus, tmp_path / "run", **changes)
    assert train.main([CONFIG, *options]) == 1
    assert not list(tmp_path.glob("run/save/CKPT*"))
    captured = capsys.readouterr()
    errors = [
        line
        for line in captured.err.splitlines()
        if line.startswith("mala-asr: error:")
    ]
    assert len(errors) == 1
    assert message in errors[0]
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    "name",
    [
        "CKPT.yaml",
        "model.ckpt",
        "optimizer.ckpt",
        "counter.ckpt",
        "random.ckpt",
        "brain.ckpt",
    ],
)
@pytest.mark.parametrize("damage", ["cut", "garbage", "missing"])
def test_a_damaged_checkpoint_is_named(
    corpus: Path,
    straight: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    damage: str,
) -> None:
    shutil.copytree(straight, tmp_path / "run")
    newest = max((tmp_path / "run" / "save").glob("CKPT+*"))
    content = (newest / name).read_bytes()
    if damage == "missing":
        (newest / name).unlink()
    else:
        half = content[: len(content) // 2] if len(content) > 9 else b""
        (newest / name).write_bytes(half if damage == "cut" else b"\0[:}")
    kept = _contents(tmp_path / "run" / "save")
    options = arguments(corpus, tmp_path / "run", number_of_epochs="3")
    status = train.main([CONFIG, *options])
    err = capsys.readouterr().err
    assert "Traceback" not in err
    if (name, damage) == ("CKPT.yaml", "missing"):
        # No checkpoint to SpeechBrain: the run goes on from the one before.
        assert status == 0
        return
    assert status == 1
    assert f"error: the checkpoint {newest} is damaged" in err
    assert _contents(tmp_path / "run" / "save") == kept


def test_a_full_disk_is_one_line_and_the_run_resumes(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "run"
    options = arguments(corpus, folder, feature_cache="memory")
    save, calls = torch.save, []

    def failing(state: object, path: Path) -> None:
        calls.append(path)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        if len(calls) > 3:  # in the second checkpoint
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
        try:
            save(state, path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", failing)
        assert train.main([CONFIG, *options]) == 1
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "make room there, and the same command resumes" in err
    assert len(list((folder / "save").glob("CKPT+*"))) == 1
    assert train.main([CONFIG, *options]) == 0
    assert not list((folder / "save" / ".partial").iterdir())


def test_two_trainings_do_not_share_a_folder(
    corpus: Path,
    straight: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = arguments(corpus, straight)
    before = (straight / "log.txt").read_bytes()
    with sole_writer(straight):
        assert train.main([CONFIG, *options]) == 1
        assert "another training is writing to" in capsys.readouterr().err
        assert (straight / "log.txt").read_bytes() == before
        # Evaluating only reads.
        assert train.main([CONFIG, "--test_only", *options]) == 0
    assert train.main([CONFIG, *options]) == 0


def test_a_run_without_its_tokenizer(
    corpus: Path,
    straight: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(straight, tmp_path / "run")
    model = tmp_path / "run" / "tokenizer.model"
    options = arguments(corpus, tmp_path / "run")
    model.write_bytes(model.read_bytes() + b"\0")
    assert train.main([CONFIG, *options]) == 1
    assert f"{model} is changed, and" in capsys.readouterr().err
    model.unlink()
    assert train.main([CONFIG, *options]) == 1
    err = capsys.readouterr().err
    assert f"{model} is missing, and the weights of this run" in err


@pytest.mark.parametrize("name", ["model.json", "tokenizer.json"])
def test_a_run_that_lost_what_tells_of_it(
    corpus: Path,
    straight: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    shutil.copytree(straight, tmp_path / "run")
    (tmp_path / "run" / name).write_text("{")
    assert train.main([CONFIG, *arguments(corpus, tmp_path / "run")]) == 1
    err = capsys.readouterr().err
    assert f"{name}, which tells what is trained here" in err


def test_other_pieces_do_not_go_on_with_old_weights(
    corpus: Path, straight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = arguments(corpus, straight, vocab_size="77")
    assert train.main([CONFIG, *options]) == 1
    assert "not 77; give another --output_folder" in capsys.readouterr().err


def test_another_model_does_not_go_on_with_old_weights(
    corpus: Path, straight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _contents(straight)
    options = arguments(corpus, straight, attention="linear")
    assert train.main([CONFIG, *options]) == 1
    assert "attention was 'mala', now 'linear'" in capsys.readouterr().err
    assert _contents(straight / "save") == {
        name.removeprefix("save/"): content
        for name, content in before.items()
        if name.startswith("save/")
    }


def test_results_go_to_standard_output_alone(
    corpus: Path, straight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train.main([CONFIG, "--test_only", *arguments(corpus, straight)])
    out = capsys.readouterr().out
    assert out.startswith("tone-test: %WER ")
    assert len(out.splitlines()) == 1
