"""What a Conformer encoder costs, against the length of its input.

As `mala_asr.benchmarks.attention`, with whole encoders: ours with MALA, and
SpeechBrain's with each of its attentions. Frames are those of the encoder,
40 ms each with a 4x front-end.

  python -m mala_asr.benchmarks.encoder --quick
  python -m mala_asr.benchmarks.encoder --plot encoder.png
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mala_asr.benchmarks import cost


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and print its tables.

    Arguments
    ---------
    argv : sequence of str, optional
        Arguments of the command line.

    Returns
    -------
    int
        0, or 1 after an expected error, or 130 when interrupted.
    """
    return cost.main("encoder", __doc__ or "", argv)


if __name__ == "__main__":
    sys.exit(main())
