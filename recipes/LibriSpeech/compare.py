#!/usr/bin/env python3
"""Compare variants of a model fairly, as a plan says.

    python recipes/LibriSpeech/compare.py \\
        recipes/LibriSpeech/plans/base_variants.yaml --data_folder data

Given again, the same command goes on where it was stopped. --help lists what
can follow.
"""

import sys
from pathlib import Path

from mala_asr.training.compare.command import main

if __name__ == "__main__":
    sys.exit(main(results=Path(__file__).resolve().parent / "results"))
