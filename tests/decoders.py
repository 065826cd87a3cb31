"""The decoders, of which some need an extra."""

from importlib.util import find_spec

import pytest

from mala_asr.decoding import DECODERS
from mala_asr.decoding.options import uses_lm

needs_flashlight = pytest.mark.skipif(
    find_spec("flashlight") is None, reason="flashlight-text is not installed"
)

EVERY_DECODER = [
    pytest.param(name, marks=[needs_flashlight] if uses_lm(name) else [])
    for name in DECODERS
]
