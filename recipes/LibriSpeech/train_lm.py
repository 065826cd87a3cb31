"""The same as `mala-asr train-lm`; `--help` lists its arguments."""

import sys

from mala_asr.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train-lm", *sys.argv[1:]]))
