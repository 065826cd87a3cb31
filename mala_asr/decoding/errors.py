"""What decoding refuses."""

from mala_asr.errors import MalaError


class DecodingError(MalaError):
    """A decoder that a model cannot serve, or input it cannot decode."""
