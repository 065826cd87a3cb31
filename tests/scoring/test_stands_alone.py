"""Scoring works where torch is not installed."""

import subprocess
import sys

# All of it, with what only other packages, tests or extras need left out.
PROGRAM = """
import sys
absent = "torch speechbrain torchaudio matplotlib pandas scipy"
sys.modules.update(dict.fromkeys([*absent.split(), "whisper_normalizer"]))
from mala_asr.scoring import Transcripts, analyze
from mala_asr.scoring.page import page_text
said = Transcripts("trn", {"a": "x y"})
found = analyze(said, Transcripts("trn", {"a": "x"}))
assert "</html>" in page_text(found, "a")
print(found.report.wer)
"""


def test_imports_no_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == ("50.0", "")
