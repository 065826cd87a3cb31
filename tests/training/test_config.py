"""Configs: bases, overrides, and mistakes named in one line."""

from pathlib import Path

import pytest

from mala_asr.training.config import (
    ConfigError,
    build_config,
    describe_config,
    read_config,
)

BASE = """\
data_folder: !PLACEHOLDER
width: 4
splits: [train]
board: False
kind: char
double: !ref <width> * 2
nested: {a: 1, b: 2}
layer: !name:torch.nn.Linear
  in_features: !ref <width>
  out_features: 3
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.yaml"
    path.write_text(BASE)
    return path


def _load(path: Path, overrides: str = "data_folder: x"):
    return build_config(read_config(path, overrides))


def test_overrides_reach_what_refers_to_them(base: Path) -> None:
    hparams = _load(base, "data_folder: x\nwidth: 5")
    assert hparams["double"] == 10
    assert hparams["layer"]().weight.shape == (3, 5)


def test_a_config_may_extend_another(base: Path, tmp_path: Path) -> None:
    child = tmp_path / "child.yaml"
    child.write_text("extends: base.yaml\nwidth: 6\nlayer: {out_features: 9}\n")
    grandchild = tmp_path / "grandchild.yaml"
    grandchild.write_text("extends: child.yaml\nnested: {b: 7}\n")
    hparams = _load(grandchild)
    assert hparams["layer"]().weight.shape == (9, 6)
    assert hparams["nested"] == {"a": 1, "b": 7}
    # The command line has the last word.
    assert _load(grandchild, "data_folder: x\nwidth: 2")["double"] == 4


def test_a_description_shows_what_is_written(
    base: Path, tmp_path: Path
) -> None:
    child = tmp_path / "child.yaml"
    child.write_text("extends: base.yaml\nwidth: 6\nlayer: {out_features: 9}\n")
    assert describe_config(child).splitlines() == [
        "  --data_folder VALUE (must be given)",
        "  --width 6",
        "  --splits [train]",
        "  --board False",
        "  --kind char",
        "  --double !ref <width> * 2",
        "  --nested {a: 1, b: 2}",
        "  --layer {in_features: !ref <width>, out_features: 9}",
    ]


def test_a_key_that_the_base_lacks_is_refused(
    base: Path, tmp_path: Path
) -> None:
    child = tmp_path / "child.yaml"
    child.write_text("extends: base.yaml\nwitdh: 6\n")
    with pytest.raises(ConfigError, match="witdh.*did you mean width"):
        read_config(child, "data_folder: x")


@pytest.mark.parametrize(
    "overrides, message",
    [
        ("data_folder: x\nwitdh: 5", "'witdh'.*did you mean width"),
        ("data_folder: x\nwidth: wide", "width is 'wide'.*like 4"),
        ("width: 5", "data_folder is not set; add --data_folder"),
        ("width: 5\nwidth: 6", "--width is given twice"),
        ("just words", "not an option: just words"),
        ("data_folder:", "data_folder is not set"),
        ("data_folder: x\nboard:", "--board has no value; add one like False"),
        ("data_folder: x\nkind:", "--kind has no value; add one like char"),
        ("data_folder: x\nsplits: dev", r"splits is 'dev'.*\[dev\]"),
        ("data_folder: [", "cannot read the overrides"),
    ],
)
def test_mistakes_on_the_command_line(
    base: Path, overrides: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        read_config(base, overrides)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text, message",
    [
        ("a: [", "config"),
        ("just text", "has no keys"),
        ("a: caf\udce9\n", "not UTF-8"),
        ("extends: config.yaml\n", "extends itself"),
        ("extends: 5\n", "5: No such file"),
        ("extends: missing.yaml\n", "missing.yaml: No such file"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(ConfigError, match=message) as error:
        read_config(path)
    assert "\n" not in str(error.value)


def test_a_key_that_a_training_misses_is_named(base: Path) -> None:
    with pytest.raises(ConfigError, match="the config has no seed; add it"):
        _load(base)["seed"]


@pytest.mark.parametrize(
    "text",
    [
        "a: !new:no.such.Thing {}",
        "a: !new:torch.nn.Linear {b: 1}",
        "a: !ref <b>",
    ],
)
def test_what_cannot_be_built_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="config.yaml") as error:
        build_config(read_config(path))
    assert "\n" not in str(error.value)
