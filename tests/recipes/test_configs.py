"""Every config loads, builds, learns, and has no key that nothing reads."""

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import speechbrain as sb
import torch
from ruamel.yaml import YAML
from speechbrain.utils.run_opts import RunOptions

from mala_asr.training import train
from mala_asr.training.config import build_config, read_config
from mala_asr.training.data_pipeline import SpeechDataset, collate
from tests.training.tone_corpus import make_tone_corpus
from tests.training.toy import toy_tokenizer, toy_utterances

HPARAMS = Path(__file__).resolve().parents[2] / "hparams"
CONFIGS = sorted(path.stem for path in HPARAMS.glob("*.yaml"))

EXPECTED = {
    "demo": "mala",
    "demo_streaming": "mala",
    "mini_librispeech_streaming": "mala",
    "mini_librispeech_mala": "mala",
    "mini_librispeech_softmax_rope": "softmax_rope",
    "mini_librispeech_linear": "linear",
    "librispeech_conformer_small_mala": "mala",
    "librispeech_conformer_small_softmax": "softmax_relpos",
    "librispeech_conformer_large_mala": "mala",
    "librispeech_conformer_large_softmax": "softmax_rope",
}

# Less data, and for the test on keys a smaller model.
DATA = """\
data_folder: {corpus}
output_folder: {output}
train_splits: [tone-dev]
valid_splits: [tone-dev]
test_splits: [tone-dev]
token_type: char
vocab_size: null
num_workers: 0
number_of_epochs: 1
"""
SMALL = """\
model: {d_model: 64, nhead: 4, num_encoder_layers: 1, num_decoder_layers: 1,
  d_ffn: 64, kernel_size: 3, frontend: conv4}
"""


class Recording(dict):
    """A config that remembers which of its keys were read."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tone_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(autouse=True)
def process_state() -> Iterator[None]:
    hook, root = sys.excepthook, logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    sys.excepthook = hook
    root.handlers[:] = handlers
    root.setLevel(level)


def _keys_that_others_refer_to(path: Path) -> set[str]:
    text = path.read_text()
    keys = set(re.findall(r"<(\w+)>", text))
    base = re.search(r"^extends: (\S+)$", text, re.MULTILINE)
    if base:
        keys |= _keys_that_others_refer_to(path.parent / base[1])
    return keys


def unread_keys(
    path: Path, overrides: str, monkeypatch: pytest.MonkeyPatch
) -> set[str]:
    """Run a config and give the keys that neither code nor YAML used."""
    configs: list[Recording] = []

    def recording(source: Any) -> Recording:
        configs.append(Recording(build_config(source)))
        return configs[-1]

    monkeypatch.setattr(train, "build_config", recording)
    options = {"device": "cpu", "noprogressbar": True}
    train.run(path, overrides, RunOptions.from_dictionary(options))
    (config,) = configs
    return set(config) - config.read - _keys_that_others_refer_to(path)


def test_these_are_the_configs() -> None:
    assert set(CONFIGS) == set(EXPECTED)


@pytest.mark.parametrize("name", CONFIGS)
def test_no_key_is_ignored(
    name: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = DATA.format(corpus=corpus, output=tmp_path / "run") + SMALL
    path = HPARAMS / f"{name}.yaml"
    assert unread_keys(path, overrides, monkeypatch) == set()


def test_a_key_that_nothing_reads_is_noticed(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.yaml"
    text = (HPARAMS / "mini_librispeech_mala.yaml").read_text()
    path.write_text(f"{text}\nlearning_rate: 1.0\n")
    overrides = DATA.format(corpus=corpus, output=tmp_path / "run") + SMALL
    assert unread_keys(path, overrides, monkeypatch) == {"learning_rate"}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_changes_the_model(name: str, tmp_path: Path) -> None:
    """With the config's own model, whatever its size."""
    hparams = build_config(
        read_config(HPARAMS / f"{name}.yaml", "data_folder: none")
    )
    tokenizer = toy_tokenizer(tmp_path)
    vocab_size = hparams["vocab_size"] or 31
    model = hparams["model"](vocab_size=vocab_size)
    assert model.config["attention"] == EXPECTED[name]
    assert model.has_decoder == (hparams["ctc_weight"] < 1.0)
    assert model.config["ctc_weight"] == hparams["ctc_weight"]

    options = RunOptions.from_dictionary({"device": "cpu"})
    config = train.check_run_options(options, hparams)
    config["grad_accumulation_factor"] = 1
    brain = train.make_brain(
        hparams, tmp_path, model, tokenizer, options, config
    )
    n_mels = model.config["n_mels"]
    data = SpeechDataset(
        toy_utterances(2),
        tokenizer,
        lambda u, _: torch.randn(int(100 * u.duration), n_mels),
    )
    brain.batches_per_epoch = 1
    brain.recipe.schedule.plan(1000)
    brain.init_optimizers()
    brain.on_stage_start(sb.Stage.TRAIN, 1)
    brain.nonfinite_count = 0
    brain.modules.train()
    brain.step = 1
    brain.optimizer_step = 500  # past the tiny rates of a long warmup
    before = [p.detach().clone() for p in model.parameters()]
    brain.fit_batch(collate([data[0], data[1]]))
    assert brain.optimizer_step == 501
    # A parameter that has no part in the loss would fail under DDP.
    moved = [
        not torch.equal(a, b)
        for a, b in zip(before, model.parameters(), strict=True)
    ]
    assert all(moved)


@pytest.mark.parametrize(
    "control, base",
    [
        ("mini_librispeech_softmax_rope", "mini_librispeech_mala"),
        ("mini_librispeech_linear", "mini_librispeech_mala"),
        (
            "librispeech_conformer_small_softmax",
            "librispeech_conformer_small_mala",
        ),
        (
            "librispeech_conformer_large_softmax",
            "librispeech_conformer_large_mala",
        ),
    ],
)
def test_controls_differ_in_the_attention_alone(
    control: str, base: str
) -> None:
    own = YAML().load(HPARAMS / f"{control}.yaml")
    assert own["extends"] == f"{base}.yaml"
    assert set(own) == {"extends", "output_folder", "attention"}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_header_tells_what_it_is_for(name: str) -> None:
    """And the number of parameters is the model's."""
    text = (HPARAMS / f"{name}.yaml").read_text()
    header = text[: re.search(r"^[^#\n]", text, re.MULTILINE).start()]
    for field in ("Data", "Parameters", "Cost"):
        assert f"# {field} " in header, field
    hparams = build_config(
        read_config(HPARAMS / f"{name}.yaml", "data_folder: x")
    )
    with torch.device("meta"):
        model = hparams["model"](vocab_size=hparams["vocab_size"] or 31)
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    stated = re.search(r"^# Parameters +([\d.]+) M", header, re.MULTILINE)
    assert stated, "no parameters in the header"
    assert float(stated[1]) == pytest.approx(millions, rel=0.01)
