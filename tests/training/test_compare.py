"""A comparison follows its plan: what runs, in which order, what is told."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mala_asr.errors import MalaError
from mala_asr.scoring.report import write_wer_files
from mala_asr.scoring.wer import score
from mala_asr.training.compare import command, runs
from mala_asr.training.compare.plan import Plan, read_plan
from mala_asr.training.compare.report import as_markdown, write_report
from mala_asr.training.compare.results import Comparison, gather
from mala_asr.training.compare.runs import (
    CompareError,
    Place,
    Run,
    TimeUp,
    check_same_plan,
    decodings,
    work,
)
from mala_asr.training.compare.worker import blind_utterances
from tests.training.tone_corpus import make_tone_corpus

PLANS = Path(__file__).resolve().parents[2] / "recipes/LibriSpeech/plans"
EPOCHS = 10
PLAN = """\
base: mini_librispeech_mala
overrides: {number_of_epochs: 10, train_splits: [tone-train],
  valid_splits: [tone-dev]}
variants:
  mala: {}
  control: {attention: softmax_rope}
control: control
seeds: [1, 2]
learning_rates: {grid: [0.01, 0.001], fraction: 0.2}
test_sets: [tone-test]
decoders: {greedy: {decoder: ctc_greedy}}
"""


def make_plan(tmp_path: Path, text: str = PLAN, **options: Any) -> Plan:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    return read_plan(path, **options)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return make_plan(tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "out", "data", "features")


class Jobs(list[str]):
    """Takes the place of the workers: notes jobs, leaves what they leave."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.facts = decodings(plan)
        # The control learns best at the low rate, mala at the high one.
        self.loss = {("mala", 0.01): 1.0, ("control", 0.001): 2.0}
        self.wrong = {"mala": 1, "control": 4}
        self.order = {"mala": "same", "control": "same"}

    def __call__(self, job: Mapping[str, Any], run: Run, until: float) -> None:
        if time.monotonic() >= until:
            raise TimeUp
        self.append(f"{job['task']} {run.name}")
        run.folder.mkdir(parents=True, exist_ok=True)
        if job["task"] == "decode":
            self._decode(run)
            return
        peak = job["overrides"]["schedule"]["peak"]
        line = {
            "epoch": 1,
            "steps": 7,
            "valid_loss": self.loss.get((run.variant, peak), 9.0),
            "valid_WER": 50.0,
            "train_speech_per_second": 12.0,
        }
        files = {
            "learning_curve.jsonl": line,
            "memory.json": {"resident": 2_000_000_000, "device": 0},
            "model.json": {"training": {"parameters": 1000}},
            "outcome.json": {
                "outcome": "finished",
                "batch_order": self.order[run.variant],
                "peak_rate": peak,
            },
        }
        for name, content in files.items():
            (run.folder / name).write_text(json.dumps(content) + "\n")

    def _decode(self, run: Run) -> None:
        target = run.decoded("greedy")
        target.mkdir(parents=True, exist_ok=True)
        said = {f"a{n}": "one two" for n in range(40)}
        heard = {
            key: "one to" if n % 10 < self.wrong[run.variant] else text
            for n, (key, text) in enumerate(said.items())
        }
        write_wer_files(target, "tone-test", score(said, heard))
        (target / "done.json").write_text(json.dumps(self.facts["greedy"]))


@pytest.fixture
def jobs(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    jobs = Jobs(plan)
    monkeypatch.setattr(runs, "_perform", jobs)
    return jobs


def test_the_scan_comes_first_then_seed_by_seed(
    plan: Plan, place: Place, jobs: Jobs
) -> None:
    work(plan, place, EPOCHS)
    assert jobs == [
        "train mala, scan of rate 0.001",
        "train mala, scan of rate 0.01",
        "train control, scan of rate 0.001",
        "train control, scan of rate 0.01",
        "train mala, seed 1",
        "decode mala, seed 1",
        "train control, seed 1",
        "decode control, seed 1",
        "train mala, seed 2",
        "decode mala, seed 2",
        "train control, seed 2",
        "decode control, seed 2",
    ]


def test_each_variant_is_trained_at_its_best_rate(
    plan: Plan, place: Place, jobs: Jobs
) -> None:
    work(plan, place, EPOCHS)
    rates = {
        variant: runs.full_run(plan, place, variant, 1).outcome["peak_rate"]
        for variant in plan.variants
    }
    assert rates == {"mala": 0.01, "control": 0.001}


def test_what_a_run_changes(plan: Plan, place: Place) -> None:
    (scan, *_) = runs.scan_runs(plan, place, EPOCHS)
    changes = runs.run_overrides(plan, place, scan)
    assert scan.epochs == 2 and changes["number_of_epochs"] == 10
    assert changes["schedule"] == {"peak": 0.001}
    assert changes["seed"] == 1 and changes["test_splits"] == []
    control = runs.full_run(plan, place, "control", 2)
    changes = runs.run_overrides(plan, place, control)
    assert changes["number_of_epochs"] == 10
    assert changes["attention"] == "softmax_rope"
    assert changes["feature_folder"] == "features"
    # What one run changes is not left over in the plan.
    assert "seed" not in plan.overrides


def test_what_is_done_is_not_done_again(
    plan: Plan, place: Place, jobs: Jobs
) -> None:
    work(plan, place, EPOCHS)
    done = list(jobs)
    work(plan, place, EPOCHS)
    assert jobs == done
    run = runs.full_run(plan, place, "mala", 2)
    (run.folder / "outcome.json").unlink()
    (run.decoded("greedy") / "done.json").unlink()
    work(plan, place, EPOCHS)
    assert jobs[len(done) :] == ["train mala, seed 2", "decode mala, seed 2"]


def test_another_decoder_decodes_again_and_trains_nothing(
    plan: Plan, place: Place, jobs: Jobs, tmp_path: Path
) -> None:
    work(plan, place, EPOCHS, ["mala"])
    jobs.clear()
    other = PLAN.replace("ctc_greedy}", "joint, beam_size: 3}")
    work(make_plan(tmp_path, other), place, EPOCHS, ["mala"])
    assert jobs == ["decode mala, seed 1", "decode mala, seed 2"]


def test_only_some_variants_and_no_longer_than_allowed(
    plan: Plan, place: Place, jobs: Jobs
) -> None:
    work(plan, place, EPOCHS, ["control"])
    assert len(jobs) == 6 and not any("mala" in job for job in jobs)
    with pytest.raises(TimeUp):
        work(plan, place, EPOCHS, deadline=time.monotonic())
    assert len(jobs) == 6


# Takes the place of the worker's module: reads its job, then does what it says.
WORKER = """
import json, os, sys
job = json.loads(sys.stdin.readline())
if job["do"] == "wait":
    sys.stdin.read()
    open(job["note"], "w").close()
    sys.exit(130)
if job["do"] == "die":
    os.kill(os.getpid(), 9)
sys.exit(job["do"])
"""


@pytest.fixture
def perform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    (tmp_path / "stand_in.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(runs, "WORKER", "stand_in")

    def perform(do: int | str, seconds: float = 60.0) -> None:
        job = {"task": "train", "do": do, "note": str(tmp_path / "note")}
        run = Run("mala", 1, None, tmp_path)
        runs._perform(job, run, time.monotonic() + seconds)

    return perform


def test_a_worker_is_stopped_in_time_and_left_to_end(
    perform: Callable[..., None], tmp_path: Path
) -> None:
    with pytest.raises(TimeUp):
        perform("wait", 0.5)
    assert (tmp_path / "note").exists()


def test_how_a_worker_fails_is_told(perform: Callable[..., None]) -> None:
    perform(0)
    with pytest.raises(CompareError, match="train mala, seed 1 failed; see"):
        perform(1)
    with pytest.raises(CompareError, match="was killed by signal 9"):
        perform("die")


def test_a_variant_that_always_diverges_stops_the_comparison(
    plan: Plan, place: Place, jobs: Jobs
) -> None:
    work(plan, place, EPOCHS)
    for run in runs.scan_runs(plan, place, EPOCHS):
        if run.variant == "mala":
            content = {"outcome": "diverged"}
            (run.folder / "outcome.json").write_text(json.dumps(content))
    with pytest.raises(CompareError, match="mala diverged at every"):
        work(plan, place, EPOCHS)


@pytest.mark.parametrize(
    "old, new, names",
    [
        ("number_of_epochs: 10", "number_of_epochs: 9", "number_of_epochs is"),
        ("softmax_rope", "linear", r"variants\.control is"),
        ("0.01,", "0.02,", "learning_rates is"),
        ("mini_librispeech_mala", "demo", r"base\.model, .*are changed"),
        ("10,", "10, ctc_weight: 0.5,", r"overrides\.ctc_weight is"),
    ],
)
def test_a_changed_plan_is_refused_by_name(
    plan: Plan, tmp_path: Path, old: str, new: str, names: str
) -> None:
    check_same_plan(plan, tmp_path / "out")
    kept = (tmp_path / "out" / "plan.json").read_text()
    assert old in PLAN
    changed = make_plan(tmp_path, PLAN.replace(old, new, 1))
    with pytest.raises(CompareError, match=names):
        check_same_plan(changed, tmp_path / "out")
    assert (tmp_path / "out" / "plan.json").read_text() == kept
    check_same_plan(plan, tmp_path / "out")


def test_a_damaged_file_is_named(plan: Plan, tmp_path: Path) -> None:
    check_same_plan(plan, tmp_path)
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(CompareError, match="plan.json is damaged"):
        check_same_plan(plan, tmp_path)


def test_more_work_is_no_change(plan: Plan, tmp_path: Path) -> None:
    check_same_plan(plan, tmp_path / "out")
    more = PLAN.replace("mala: {}", "mala: {}\n  linear: {attention: linear}")
    more = more.replace("[1, 2]", "[1, 2, 3]")
    check_same_plan(make_plan(tmp_path, more), tmp_path / "out")
    # One that is left out may come back, but not as something else.
    check_same_plan(plan, tmp_path / "out")
    other = more.replace("attention: linear", "attention: inline")
    with pytest.raises(CompareError, match=r"variants\.linear is"):
        check_same_plan(make_plan(tmp_path, other), tmp_path / "out")


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("seeds:", "sedes:", "no key 'sedes' in a plan; did you mean seeds"),
        ("control: control", "control: x", "name one of the variants: mala"),
        ("[1, 2]", "[1, 1]", "seeds is .* a list of different whole numbers"),
        ("[1, 2]", "[-1]", "give 0 or more"),
        ("{grid: [0.01, 0.001]", "{grid: [a]", "a list of different numbers"),
        ("fraction: 0.2", "fraction: 2", "give a share of the epochs"),
        ("fraction: 0.2", "best: CER", "choose loss or WER"),
        ("attention: softmax_rope", "atention: x", "did you mean attention"),
        ("attention: softmax_rope", "seed: 3", "which all must share"),
        ("number_of_epochs: 10", "seed: 10", "belongs to the comparison"),
        ("mala: {}", "a/b: {}", "is to name a folder"),
        ("mala: {}", "mala: 3", r"write it as \{KEY: VALUE\}"),
        ("ctc_greedy", "greedy", "unknown decoder 'greedy'"),
        ("ctc_greedy", "ctc_beam, lm: null", "add --lm FILE"),
        ("[tone-test]", "[]", "a list of different names"),
        ("base: mini_librispeech_mala", "base: mini", "no config named"),
        ("base: mini_librispeech_mala", "", "base is missing"),
        (PLAN, "- 1", "not a mapping"),
        (PLAN, "a: [", "plan.yaml: "),
    ],
)
def test_a_wrong_plan_is_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in PLAN
    with pytest.raises(MalaError, match=message):
        make_plan(tmp_path, PLAN.replace(old, new, 1))


def test_a_wrong_model_is_found_before_the_first_run(tmp_path: Path) -> None:
    corpus = make_tone_corpus(tmp_path / "corpus")
    plan = make_plan(tmp_path)
    shared = runs.check_models(plan, str(corpus))
    assert shared["number_of_epochs"] == EPOCHS
    for old, new, message in (
        ("softmax_rope", "softmix", "variant control: unknown attention"),
        ("tone-test", "tone-tset", "did you mean tone-test"),
    ):
        wrong = make_plan(tmp_path, PLAN.replace(old, new))
        with pytest.raises(MalaError, match=message):
            runs.check_models(wrong, str(corpus))


@pytest.mark.parametrize(
    "decoder, message",
    [
        ("ctc_beam, lm: null", "greedy: .*plan.yaml is not an ARPA file"),
        ("joint", "greedy: .*decoder"),
    ],
)
def test_a_decoder_that_does_not_fit_is_found_before_the_first_run(
    tmp_path: Path, decoder: str, message: str
) -> None:
    corpus = make_tone_corpus(tmp_path / "corpus")
    place = Place(tmp_path / "out", str(corpus), "features")
    variants = PLAN.replace("mala: {}", "mala: {ctc_weight: 1.0}")
    runs.check_decoders(make_plan(tmp_path, variants), place)
    wrong = variants.replace("ctc_greedy", decoder)
    plan = make_plan(tmp_path, wrong, lm=str(tmp_path / "plan.yaml"))
    with pytest.raises(CompareError, match=message):
        runs.check_decoders(plan, place)


def test_overrides_and_language_model_of_the_command_line(
    tmp_path: Path,
) -> None:
    text = PLAN.replace("ctc_greedy", "ctc_beam, lm: null")
    plan = make_plan(
        tmp_path, text, overrides="{batch_seconds: 9}", lm="words.bin"
    )
    assert plan.overrides["batch_seconds"] == 9
    assert plan.overrides["number_of_epochs"] == 10
    assert plan.decoders["greedy"].lm == "words.bin"
    with pytest.raises(CompareError, match="no language model words.bin"):
        decodings(plan)


def test_the_language_models_content_counts_and_not_its_place(
    tmp_path: Path,
) -> None:
    text = PLAN.replace("ctc_greedy", "ctc_beam, lm: null")
    facts = []
    for name, content in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).write_text(content)
        plan = make_plan(tmp_path, text, lm=str(tmp_path / name))
        facts.append(decodings(plan)["greedy"])
    run = Run("mala", 1, None, tmp_path)
    run.decoded("greedy").mkdir(parents=True)
    (run.decoded("greedy") / "done.json").write_text(json.dumps(facts[0]))
    assert [runs.is_decoded(run, "greedy", f) for f in facts] == [
        True,
        True,
        False,
    ]


def _found(plan: Plan, place: Place) -> Comparison:
    config = {
        "train_splits": ["tone-train"],
        "valid_splits": ["tone-dev"],
        "number_of_epochs": EPOCHS,
        "batch_seconds": 8,
        "average_checkpoints": 2,
    }
    return gather(plan, place, config)


def test_the_table(plan: Plan, place: Place, jobs: Jobs) -> None:
    work(plan, place, EPOCHS)
    found = _found(plan, place)
    words = found.words["greedy"]["tone-test"]
    # 4 and 16 errors in 80 words, the same with both seeds.
    assert words["mala"]["WER"] == 5.0 and words["control"]["WER"] == 20.0
    assert words["mala"]["low"] < 5.0 < words["mala"]["high"]
    against = words["mala"]["against_control"]
    assert against["relative"] == -75.0
    assert against["bootstrap"]["p_value"] < 0.01
    assert 0 < against["mapsswe"][1]["p_value"] < 0.01
    text = as_markdown(found)
    assert "| mala | 5.00 % | " in text and "| -75.0 % | 0.000" in text
    assert "| mala | 0.01 | 1,000 | +0 | 12 s | 2.00 GB |" in text
    assert "| mala | 9.0, 50.0 % | **1.0, 50.0 %** |" in text
    assert "same batches in the same order" in text
    # Both of a grid of two are at its edge.
    assert len(found.notes) == 2


def test_more_seeds_do_not_count_as_more_speech(
    plan: Plan, place: Place, jobs: Jobs, tmp_path: Path
) -> None:
    work(plan, place, EPOCHS)
    two = _found(plan, place).words["greedy"]["tone-test"]["control"]
    one_seed = make_plan(tmp_path, PLAN.replace("[1, 2]", "[1]"))
    one = _found(one_seed, place).words["greedy"]["tone-test"]["control"]
    assert (one["low"], one["high"]) == (two["low"], two["high"])


def test_what_is_missing_or_unfair_is_told(
    plan: Plan, place: Place, jobs: Jobs
) -> None:
    jobs.order["mala"] = "another"
    work(plan, place, EPOCHS, ["mala"])
    found = _found(plan, place)
    assert "control, seed 2: not trained yet" in found.notes
    assert "control" not in found.words["greedy"]["tone-test"]
    assert found.words["greedy"]["tone-test"]["mala"]["WER"] == 5.0
    work(plan, place, EPOCHS)
    found = _found(plan, place)
    assert "seed 1: NOT FAIR, the variants saw different batches" in found.notes
    assert "same batches in the same order" not in as_markdown(found)


def test_the_report_names_no_place_and_holds_no_reference(
    plan: Plan, place: Place, jobs: Jobs, tmp_path: Path
) -> None:
    work(plan, place, EPOCHS)
    dest = tmp_path / "results" / plan.name
    write_report(_found(plan, place), decodings(plan), dest)
    files = {
        str(path.relative_to(dest))
        for path in dest.rglob("*")
        if path.is_file()
    }
    hypotheses = {
        f"hypotheses/greedy/tone-test/{variant}-{seed}.trn"
        for variant in ("mala", "control")
        for seed in (1, 2)
    }
    pages = {"README.md", "results.json", "learning_curves.png"}
    assert files == hypotheses | pages
    for name in files - {"learning_curves.png"}:
        assert str(tmp_path) not in (dest / name).read_text()
    record = json.loads((dest / "results.json").read_text())
    assert record["cost"]["mala"]["parameters"] == 1000


def test_different_references_are_refused(
    plan: Plan, place: Place, jobs: Jobs
) -> None:
    work(plan, place, EPOCHS)
    folder = runs.full_run(plan, place, "mala", 1).decoded("greedy")
    path = folder / "ref_tone-test.trn"
    path.write_text(path.read_text().replace("one two (a0)", "one (a0)"))
    with pytest.raises(CompareError, match="different versions of tone-test"):
        _found(plan, place)


def test_blind_recordings(tmp_path: Path) -> None:
    corpus = make_tone_corpus(tmp_path)
    found = blind_utterances(corpus, "tone-dev")
    assert [u.id for u in found] == [f"1-2-1{n:03d}" for n in range(4)]
    assert all(u.wrd == "" and u.duration > 0 for u in found)
    (tmp_path / "empty").mkdir()
    with pytest.raises(MalaError, match="holds no recording"):
        blind_utterances(corpus, "empty")
    twin = corpus / "tone-dev" / "1-2-1000.flac"
    twin.write_bytes(next(corpus.rglob("1-2-1000.flac")).read_bytes())
    with pytest.raises(MalaError, match="have one name"):
        blind_utterances(corpus, "tone-dev")


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.yaml")))
def test_the_recipes_plans_can_be_followed(path: Path, tmp_path: Path) -> None:
    plan = read_plan(path, lm="words.bin")
    for split in (*plan.overrides["train_splits"], *plan.test_sets):
        (tmp_path / split).mkdir(exist_ok=True)
    for split in (*plan.overrides["valid_splits"], *plan.blind_sets):
        (tmp_path / split).mkdir(exist_ok=True)
    runs.check_models(plan, str(tmp_path))


@pytest.mark.parametrize(
    "options, status, message",
    [
        ([], 2, "required: --data_folder"),
        (["--data_folder=d", "--max-hours=0"], 2, "no number above 0"),
        (["--data_folder=d", "--only", "x"], 1, "no such variant; the plan"),
        (["--data_folder=d", "--overrides=[1]"], 1, "not a mapping"),
        (["--data_folder=d"], 1, "no such data folder"),
    ],
)
def test_wrong_arguments_are_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    status: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.yaml").write_text(PLAN)
    try:
        found = command.main(["plan.yaml", *options])
    except SystemExit as stop:
        found = stop.code
    captured = capsys.readouterr()
    assert found == status
    assert message in captured.err.splitlines()[-1]
    assert captured.out == ""


def test_a_plan_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(b"base: \xff")
    with pytest.raises(MalaError, match="plan.yaml is not a plan: it is not"):
        read_plan(path)


def test_a_missing_plan_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "no.yaml"
    assert command.main([str(path), "--data_folder=x"]) == 1
    assert capsys.readouterr().err == (
        f"compare: error: {path}: No such file or directory\n"
    )
