"""Help comes at once, for every command, and without loading torch."""

import subprocess
import sys

import pytest

from mala_asr.cli.main import COMMANDS

SCRIPT = """
import sys
from mala_asr.cli.main import main

try:
    main(sys.argv[1:])
except SystemExit as stop:
    assert stop.code in (0, None), stop.code
heavy = {"torch", "torchaudio", "speechbrain"} & set(sys.modules)
assert not heavy, f"loaded for a help text: {heavy}"
"""


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_light(command: str):
    arguments = [command] if command else []
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments, "--help"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert f"usage: mala-asr {command}".strip() in done.stdout
