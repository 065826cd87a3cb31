"""What an attention layer costs, against the length of its input.

Time and peak memory of forward, and of forward and backward, on one recording
of 128 to 100,000 frames: MALA as it is and compiled, and SpeechBrain's
RelPosMHAXL, RoPEMHA, HyperMixing and regularMHA, side by side in one run.

  python -m mala_asr.benchmarks.attention --quick
  python -m mala_asr.benchmarks.attention --plot attention.png
"""

from __future__ import annotations

import sys
from functools import partial

from mala_asr.benchmarks import cost

main = partial(cost.main, "attention", __doc__)

if __name__ == "__main__":
    sys.exit(main())
