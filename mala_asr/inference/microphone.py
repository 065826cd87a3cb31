"""What a microphone hears, as raw audio.

Through the package sounddevice, which is the extra ``microphone``.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator

from mala_asr.errors import MalaError

# Seconds of a block: short beside a chunk.
_BLOCK = 0.1


class MicrophoneError(MalaError):
    """A microphone that cannot be used, with the remedy."""


def listen(sample_rate: int) -> Iterator[bytes]:
    """Record from the default microphone for as long as it is read.

    Arguments
    ---------
    sample_rate : int
        In Hz.

    Yields
    ------
    bytes
        Mono, signed 16-bit little-endian samples.

    Raises
    ------
    MicrophoneError
        When sounddevice or the microphone is missing, or cannot record at
        this rate.
    """
    try:
        import sounddevice
    except ModuleNotFoundError as error:
        raise MicrophoneError(
            "a microphone needs the package sounddevice; pip install "
            "'mala_asr[microphone]'"
        ) from error
    except OSError as error:
        raise MicrophoneError(
            f"sounddevice does not work here: {error}; install PortAudio "
            "(apt install libportaudio2)"
        ) from error
    blocks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    try:
        stream = sounddevice.RawInputStream(
            samplerate=sample_rate,
            channels=1,
            dtype="int16",
            blocksize=round(_BLOCK * sample_rate),
            callback=lambda data, *_: blocks.put(bytes(data)),
        )
        with stream:
            while True:
                yield blocks.get()
    except sounddevice.PortAudioError as error:
        raise MicrophoneError(
            f"the microphone cannot be used: {error}; check that there is one "
            f"and that it records {sample_rate} Hz"
        ) from error
