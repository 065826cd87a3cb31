"""What the README files tell people to type exists."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from mala_asr.cli.main import COMMANDS, main, module_of
from mala_asr.training.compare.command import build_parser as comparison_parser
from mala_asr.training.compare.plan import read_plan

DOCUMENTS = ("README.md", "recipes/LibriSpeech/README.md", "docs/claims.md")

# Of SpeechBrain's Brain; other options of a training run are its YAML's keys.
RUN_OPTIONS = {"--debug", "--device", "--precision", "--tensorboard"}


def shell_commands(text: str) -> Iterator[list[str]]:
    """Split every line of the ```bash blocks, continuations joined."""
    for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", "").splitlines():
            words = shlex.split(line, comments=True)
            # Environment settings may stand before a command.
            while words and re.match(r"[A-Z_]+=", words[0]):
                words.pop(0)
            if words:
                yield words


def option_names(words: list[str]) -> set[str]:
    return {w.partition("=")[0] for w in words if w.startswith("--")}


def check_mala_asr(words: list[str], root: Path) -> None:
    command, *rest = words
    assert command in COMMANDS
    with patch(f"{module_of(command)}.run", return_value=0) as run:
        try:
            assert main(words) == 0
        except SystemExit as refusal:
            raise AssertionError(f"refused: {words}") from refusal
    run.assert_called_once()
    if command == "train":
        check_training(rest, root)


def check_training(words: list[str], root: Path) -> None:
    config, *rest = words
    assert (root / config).is_file(), config
    keys = set(re.findall(r"^(\w+):", hparams_text(root / config), re.M))
    known = {f"--{key}" for key in keys} | RUN_OPTIONS
    known |= {"--test_only", "--help"}
    assert option_names(rest) <= known, option_names(rest) - known


def hparams_text(path: Path) -> str:
    """A config with the text of the configs that it extends."""
    text = path.read_text(encoding="utf-8")
    bases = re.findall(r"^extends: (\S+)", text, re.MULTILINE)
    return "\n".join([text, *(hparams_text(path.parent / b) for b in bases)])


def check_make(words: list[str], root: Path) -> None:
    makefile = (root / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert {word for word in words if "=" not in word} <= targets


def check_python(words: list[str], root: Path) -> None:
    if words[0] == "-m":
        module = root / words[1].replace(".", "/")
        ours = words[1].startswith("mala_asr")
        assert not ours or module.with_suffix(".py").is_file(), words
        return
    assert (root / words[0]).is_file(), words
    if Path(words[0]).name == "compare.py":
        args = comparison_parser().parse_args(words[1:])
        plan = read_plan(root / args.plan, args.overrides, args.lm)
        assert set(args.only) <= set(plan.variants)
        return
    # The recipe's scripts are the commands of the same names.
    script = Path(words[0]).stem.replace("_", "-")
    check_mala_asr([script, *words[1:]], root)


CHECKS = {
    "mala-asr": check_mala_asr,
    "make": check_make,
    "python": check_python,
}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_exists(repository: Path, document: str):
    text = (repository / document).read_text(encoding="utf-8")
    checked = 0
    for program, *words in shell_commands(text):
        program = Path(program).name
        if program in CHECKS:
            CHECKS[program](words, repository)
            checked += 1
    assert checked >= 3


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_to_a_file_leads_somewhere(repository: Path, document: str):
    path = repository / document
    links = re.findall(
        r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")
    )
    local = [link for link in links if "://" not in link]
    for link in local:
        assert (path.parent / link).exists(), link


def test_every_config_is_explained(repository: Path):
    text = (repository / "recipes/LibriSpeech/README.md").read_text(
        encoding="utf-8"
    )
    configs = sorted(path.name for path in repository.glob("hparams/*.yaml"))
    assert configs
    assert [name for name in configs if name not in text] == []


def test_the_readme_explains_every_command(repository: Path):
    text = (repository / "README.md").read_text(encoding="utf-8")
    missing = [name for name in COMMANDS if f"mala-asr {name}" not in text]
    assert missing == []


def test_a_command_that_does_not_exist_is_found_out(repository: Path):
    for line in ("mala-asr translate x", "mala-asr score --loud a b"):
        _, *words = next(shell_commands(f"```bash\n{line}\n```"))
        with pytest.raises(AssertionError):
            check_mala_asr(words, repository)
    with pytest.raises(AssertionError):
        check_make(["dance"], repository)
