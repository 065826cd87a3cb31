"""The Conformer with its attention swapped, exact under padding."""

from mala_asr.models.asr import MalaASR
from mala_asr.models.attention import ATTENTIONS, ModelOptionError
from mala_asr.models.transformer import MalaTransformerASR

__all__ = ["ATTENTIONS", "MalaASR", "MalaTransformerASR", "ModelOptionError"]
