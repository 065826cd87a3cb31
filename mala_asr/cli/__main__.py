"""``python -m mala_asr.cli`` is the command ``mala-asr``."""

import sys

from mala_asr.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
