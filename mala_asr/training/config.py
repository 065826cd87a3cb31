"""Reading a training config: HyperPyYAML, a base to build on, overrides.

A config may start from another one: ``extends: mini_librispeech_mala.yaml``
takes every key of that file (looked up beside it) and replaces those that are
written below. What the command line gives replaces either.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperpyyaml import load_hyperpyyaml
from hyperpyyaml.core import recursive_update
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError

from mala_asr.errors import MalaError
from mala_asr.paths import hparams_file

_BASE_KEY = "extends"
_PLACEHOLDER = "!PLACEHOLDER"


class ConfigError(MalaError):
    """A config that cannot be used as it is."""


@dataclass(frozen=True)
class ConfigSource:
    """Where a config's values come from.

    Arguments
    ---------
    file : Path
        The file that holds every key.
    changes : dict
        What replaces its values.
    """

    file: Path
    changes: dict[str, Any]


def read_config(path: str | Path, overrides: str = "") -> ConfigSource:
    """Find a config's base and gather what replaces its values.

    Arguments
    ---------
    path : str or Path
        The config.
    overrides : str
        YAML text whose keys replace the config's.

    Returns
    -------
    ConfigSource
        For `build_config`.

    Raises
    ------
    ConfigError
        If a file is missing or not a config, if an override is not one of
        its keys or is text in place of a number, or if a value that the user
        must give was not given.
    """
    file, values, changes = _follow_base(Path(path))
    given = _parse_overrides(overrides)
    _check_overrides(given, values)
    recursive_update(changes, given)
    for key, value in values.items():
        if _tag(value) == _PLACEHOLDER and changes.get(key) is None:
            raise ConfigError(f"{key} is not set; add --{key} VALUE")
    return ConfigSource(file, changes)


def describe_config(path: str | Path) -> str:
    """List the keys of a config with their values.

    Arguments
    ---------
    path : str or Path
        The config.

    Returns
    -------
    str
        A line for each; objects are shown by their arguments.

    Raises
    ------
    ConfigError
        As for `read_config`.

    Example
    -------
    >>> path = getfixture("tmp_path") / "a.yaml"
    >>> _ = path.write_text("width: 2\\nlayer: !new:Layer {size: !ref <width>}")
    >>> print(describe_config(path))
      --width 2
      --layer {size: !ref <width>}
    """
    _, values, changes = _follow_base(Path(path))
    recursive_update(values, changes)
    return "\n".join(
        textwrap.fill(
            f"--{key} {_in_words(value)}",
            width=79,
            initial_indent="  ",
            subsequent_indent="      ",
        )
        for key, value in values.items()
    )


def build_config(source: ConfigSource) -> dict[str, Any]:
    """Build the objects of a config.

    Arguments
    ---------
    source : ConfigSource
        What `read_config` found.

    Returns
    -------
    dict
        Its keys with their values.

    Raises
    ------
    ConfigError
        If a value cannot be built.

    Example
    -------
    >>> path = getfixture("tmp_path") / "a.yaml"
    >>> _ = path.write_text("width: 2\\nsize: !ref <width> * 2\\n")
    >>> build_config(read_config(path, "width: 3"))
    {'width': 3, 'size': 6}
    """
    try:
        with open(source.file, encoding="utf-8") as stream:
            return _Config(load_hyperpyyaml(stream, source.changes))
    except (ImportError, TypeError, ValueError, YAMLError) as error:
        details = " ".join(str(part) for part in error.args or (error,))
        raise ConfigError(
            f"{source.file}: {' '.join(details.split())}"
        ) from error


def config_path(config: str | Path) -> Path:
    """Find a config by its path or by its name.

    Arguments
    ---------
    config : str or Path
        The config's file, or the name of one that ships with the package.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    MalaError
        If it is a bare name and no config has it.

    Example
    -------
    >>> config_path("demo").name
    'demo.yaml'
    """
    path = Path(config)
    if path.exists() or path.parent != Path("."):
        return path
    return hparams_file(path.name)


def check_keys(
    given: Iterable[str], known: Iterable[str], message: str
) -> None:
    """Refuse a key that is not known, and name the one most like it.

    Arguments
    ---------
    given : iterable of str
        The keys to check.
    known : iterable of str
        Those that there are.
    message : str
        What to say, with ``{!r}`` for the key.

    Raises
    ------
    ConfigError
        For the first that is not known.

    Example
    -------
    >>> check_keys(["sede"], ["seed", "model"], "no key {!r}")
    Traceback (most recent call last):
    ...
    mala_asr.training.config.ConfigError: no key 'sede'; did you mean seed?
    """
    known = list(known)
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(message.format(key) + hint)


class _Config(dict[str, Any]):
    """A config that says which of the keys that a training needs it lacks."""

    def __missing__(self, key: str) -> Any:
        raise ConfigError(
            f"the config has no {key}; add it, or start from a config of "
            f"hparams/ with `{_BASE_KEY}: NAME.yaml`"
        )


def _follow_base(
    path: Path, seen: tuple[Path, ...] = ()
) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """The file that holds every key, its values, and what replaces them."""
    values = _load_mapping(path)
    if _BASE_KEY not in values:
        return path, values, {}
    seen = (*seen, path.resolve())
    base = path.parent / str(values.pop(_BASE_KEY))
    if base.resolve() in seen:
        raise ConfigError(f"{path} extends itself; name another {_BASE_KEY}")
    file, base_values, changes = _follow_base(base, seen)
    check_keys(values, base_values, f"{path}: no key {{!r}} in {base.name}")
    recursive_update(changes, values)
    return file, base_values, changes


def _load_mapping(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read the config {path}: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not a config: it is not UTF-8 text"
        ) from error
    try:
        values = YAML().load(text)
    except YAMLError as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is not a config: it has no keys")
    return values


def _parse_overrides(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        given = YAML().load(text)
    except DuplicateKeyError as error:
        key = str(error.problem).split('"')[1]
        raise ConfigError(f"--{key} is given twice; give it once") from error
    except YAMLError as error:
        raise ConfigError(
            f"cannot read the overrides: {' '.join(str(error).split())}"
        ) from error
    if not isinstance(given, dict):
        raise ConfigError(f"not an option: {text}; options are --KEY VALUE")
    return given


def _check_overrides(
    given: Mapping[str, Any], values: Mapping[str, Any]
) -> None:
    check_keys(given, values, "no key {!r} in the config")
    for key, value in given.items():
        expected = values[key]
        if isinstance(expected, bool | str) and value is None:
            raise ConfigError(f"--{key} has no value; add one like {expected}")
        if isinstance(expected, int | float) and isinstance(value, str):
            raise ConfigError(
                f"{key} is {value!r}; a value like {expected} was expected"
            )
        if isinstance(expected, list) and not isinstance(value, list):
            raise ConfigError(f'{key} is {value!r}; write it as "[{value}]"')


def _in_words(value: object) -> str:
    if _tag(value) == _PLACEHOLDER:
        return "VALUE (must be given)"
    if isinstance(value, Mapping):
        inner = (f"{key}: {_in_words(part)}" for key, part in value.items())
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_in_words, value))}]"
    if value is None:
        return "null"
    text = str(getattr(value, "value", value))
    tag = _tag(value)
    return text if tag is None else f"{tag} {text}"


def _tag(value: object) -> str | None:
    tag = getattr(value, "tag", None)
    return getattr(tag, "value", None)
