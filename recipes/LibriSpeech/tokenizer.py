"""The same as `mala-asr tokenizer`; `--help` lists its arguments."""

import sys

from mala_asr.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["tokenizer", *sys.argv[1:]]))
