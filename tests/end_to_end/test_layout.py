"""The arrows between the packages point one way, as designed."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT_MODULES = {"", "arguments", "devices", "errors", "paths"}
LOWER = {"models", "decoding", "data", "scoring"}

# What each package may import of ours. Nothing imports cli or benchmarks.
ALLOWED = {
    "attention": set(),
    "scoring": {"errors"},
    "data": ROOT_MODULES,
    "models": ROOT_MODULES | {"attention"},
    "decoding": ROOT_MODULES | {"models"},
    "training": ROOT_MODULES | LOWER,
    "inference": ROOT_MODULES | LOWER,
    "benchmarks": ROOT_MODULES | LOWER | {"attention", "training", "inference"},
    "cli": ROOT_MODULES | LOWER | {"training", "inference"},
}

# Packages that must stay usable without these.
FOREIGN = {
    "attention": {"speechbrain"},
    "scoring": {"torch", "torchaudio", "speechbrain"},
}


def imported_modules(path: Path) -> Iterator[str]:
    """Dotted names that a file imports, at any depth of the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            yield module
            # `from mala_asr import data` imports a package as well.
            yield from (f"{module}.{alias.name}" for alias in node.names)


def our_packages(path: Path, packages: set[str]) -> set[str]:
    """First level below mala_asr of everything a file imports of ours."""
    found = set()
    for name in imported_modules(path):
        top, _, rest = name.partition(".")
        if top == "mala_asr":
            package = rest.partition(".")[0]
            # A name defined in mala_asr/__init__.py belongs to the root.
            found.add(package if package in packages else "")
    return found


def files(repository: Path, package: str) -> list[Path]:
    return sorted((repository / "mala_asr" / package).rglob("*.py"))


def test_every_package_has_a_place_in_the_layout(repository: Path):
    packages = {
        path.parent.name
        for path in (repository / "mala_asr").glob("*/__init__.py")
    }
    assert packages == set(ALLOWED)


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_lies_below_it(
    repository: Path, package: str
):
    known = set(ALLOWED) | ROOT_MODULES
    for path in files(repository, package):
        # A file without imports of ours proves nothing, and need not.
        wrong = our_packages(path, known) - ALLOWED[package] - {package, ""}
        assert not wrong, f"{path} imports {sorted(wrong)}"


@pytest.mark.parametrize("package", FOREIGN)
def test_a_package_does_without_heavy_libraries(repository: Path, package: str):
    for path in files(repository, package):
        tops = {name.partition(".")[0] for name in imported_modules(path)}
        assert not tops & FOREIGN[package], path


def test_the_import_reader_sees_every_form(tmp_path: Path):
    source = tmp_path / "module.py"
    source.write_text(
        "import torch.nn as nn\n"
        "from mala_asr import cli\n"
        "def late():\n"
        "    from mala_asr.training.train import run\n"
    )
    assert our_packages(source, set(ALLOWED)) == {"", "cli", "training"}
