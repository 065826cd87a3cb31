"""Scoring works where torch is not installed."""

import subprocess
import sys

PROGRAM = """
import sys
sys.modules.update(torch=None, speechbrain=None, torchaudio=None)
from mala_asr.scoring import score
print(score({"a": "x y"}, {"a": "x"}).wer)
"""


def test_imports_no_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == ("50.0", "")
