"""What a Conformer encoder costs, against the length of its input.

As `mala_asr.benchmarks.attention`, with whole encoders: ours with MALA, and
SpeechBrain's with each of its attentions. Frames are those of the encoder,
40 ms each with a 4x front-end.

  python -m mala_asr.benchmarks.encoder --quick
  python -m mala_asr.benchmarks.encoder --plot encoder.png
"""

from __future__ import annotations

import sys
from functools import partial

from mala_asr.benchmarks import cost

main = partial(cost.main, "encoder", __doc__)

if __name__ == "__main__":
    sys.exit(main())
