"""An installed copy has everything that a checkout has."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mala_asr.errors import MalaError
from mala_asr.paths import hparams_file

SOURCES = ("mala_asr", "hparams", "setup.py", "pyproject.toml", "README.md")


@pytest.fixture(scope="module")
def installed(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The content of the wheel, as pip lays it into site-packages."""
    # Built from a copy, since setuptools writes into the source tree.
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        path = repository / name
        if path.is_dir():
            shutil.copytree(
                path,
                source / name,
                ignore=shutil.ignore_patterns("__pycache__", ".*"),
            )
        else:
            shutil.copy(path, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run(
        [*build, "--no-build-isolation", "--wheel-dir", source, source],
        check=True,
    )
    (wheel,) = source.glob("*.whl")
    folder = tmp_path_factory.mktemp("site-packages")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def relative_files(folder: Path, pattern: str) -> set[str]:
    return {
        path.relative_to(folder).as_posix() for path in folder.rglob(pattern)
    }


def test_every_module_and_config_is_packed(repository: Path, installed: Path):
    modules = relative_files(repository / "mala_asr", "*.py")
    assert relative_files(installed / "mala_asr", "*.py") == modules
    configs = relative_files(repository / "hparams", "*.yaml")
    assert configs
    packed = relative_files(installed / "mala_asr" / "hparams", "*.yaml")
    assert packed == configs


def test_the_model_to_start_from_is_packed(repository: Path, installed: Path):
    folders = [
        root / "mala_asr" / "pretrained" / "mini_librispeech_mala"
        for root in (repository, installed)
    ]
    ours, packed = (
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in folders
    )
    assert "model.safetensors" in ours
    assert packed == ours


def test_nothing_but_the_package_is_packed(installed: Path):
    (information,) = installed.glob("*.dist-info")
    names = {path.name for path in installed.iterdir()}
    assert names == {"mala_asr", information.name}


def test_an_installed_copy_finds_its_own_configs(installed: Path):
    script = "from mala_asr.paths import hparams_file as f; print(f('demo'))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=installed,  # comes first on the path of imports
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    expected = installed / "mala_asr" / "hparams" / "demo.yaml"
    assert Path(done.stdout.strip()) == expected.resolve()


def test_a_config_that_does_not_exist_is_named_with_those_that_do():
    with pytest.raises(MalaError, match="no config named 'damo'.*demo"):
        hparams_file("damo")
