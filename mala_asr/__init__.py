"""Speech recognition with linear-cost attention, inside SpeechBrain."""

__version__ = "0.1.0"
