"""Speech recognition with linear-cost attention, inside SpeechBrain.

from mala_asr import Transcriber

for transcript in Transcriber("my-model").transcribe(["a.wav", "b.mp3"]):
    print(transcript.path, transcript.text)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mala_asr.inference.engine import Engine
    from mala_asr.inference.segmentation import Segmentation
    from mala_asr.inference.transcriber import Transcriber
    from mala_asr.inference.transcript import Recording, Segment, Transcript

__version__ = "0.1.0"

__all__ = [
    "Engine",
    "Recording",
    "Segment",
    "Segmentation",
    "Transcriber",
    "Transcript",
]

_PLACES = {
    "Engine": "mala_asr.inference.engine",
    "Segmentation": "mala_asr.inference.segmentation",
    "Transcriber": "mala_asr.inference.transcriber",
    "Recording": "mala_asr.inference.transcript",
    "Segment": "mala_asr.inference.transcript",
    "Transcript": "mala_asr.inference.transcript",
}


def __getattr__(name: str) -> Any:
    # Loaded when first asked for: torch takes seconds.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
