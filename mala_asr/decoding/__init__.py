"""From log-probabilities to hypotheses."""

# Without torch, so that the command line can offer the decoders by name.
from mala_asr.decoding.options import DEFAULTS, DecodingOptions

DECODERS = tuple(DEFAULTS)

__all__ = ["DECODERS", "DecodingOptions"]
