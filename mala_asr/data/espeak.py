"""The eSpeak NG speech synthesizer, through its C library.

The library remembers things from one text to the next (where a vocal cord's
cycle ended, for one), and none of its calls makes it forget: the same words
would sound different each time. So it is loaded afresh for every text, some
hundredths of a second. It is not for threads; use several processes.
"""

from __future__ import annotations

import _ctypes
import ctypes
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mala_asr.errors import MalaError

# From eSpeak NG's speak_lib.h.
_SYNCHRONOUS_OUTPUT = 2
_DONT_EXIT = 0x8000
_UTF8 = 1
_POSITION_CHARACTER = 1
_PARAMETERS = {"rate": 1, "pitch": 3, "pitch_range": 4}
_LIST_TERMINATED, _WORD = 0, 1


class _Event(ctypes.Structure):
    """Something that happens at a place of the sound."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),  # characters, from 1
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),  # milliseconds
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_short),
    ctypes.c_int,
    ctypes.POINTER(_Event),
)


class SynthesisError(MalaError):
    """The synthesizer is not there or did not do what it was told."""


def speak(
    text: str,
    voice: str,
    rate: int = 175,
    pitch: int = 50,
    pitch_range: int = 50,
) -> tuple[np.ndarray, int]:
    """Speak a text; the same call gives the same samples.

    Voices with a `breath` (f2, f3 and f5 among them) are an exception:
    eSpeak draws it from memory that nobody set.

    Arguments
    ---------
    text : str
        What to say.
    voice : str
        eSpeak's name of a language and perhaps a variant, "en-us+f4".
    rate : int
        Words a minute, 80 to 450.
    pitch : int
        0 to 99; 50 is the voice's own.
    pitch_range : int
        0 (monotone) to 99; 50 is the voice's own.

    Returns
    -------
    numpy.ndarray
        Shape (samples,), int16.
    int
        Their sample rate, in Hz.

    Raises
    ------
    SynthesisError
        If eSpeak NG is not installed, there is no such voice, or no sound
        comes out.

    Example
    -------
    >>> samples, sample_rate = speak("good morning", "en-us", rate=160)
    >>> 0.5 < len(samples) / sample_rate < 2
    True
    """
    settings = {"rate": rate, "pitch": pitch, "pitch_range": pitch_range}
    samples, sample_rate, _ = speak_timed(text, voice, **settings)
    return samples, sample_rate


def speak_timed(
    text: str,
    voice: str,
    rate: int = 175,
    pitch: int = 50,
    pitch_range: int = 50,
) -> tuple[np.ndarray, int, dict[int, float]]:
    """Speak a text and tell when each of its words begins.

    Arguments
    ---------
    text, voice, rate, pitch, pitch_range
        As for `speak`.

    Returns
    -------
    numpy.ndarray
        Shape (samples,), int16.
    int
        Their sample rate, in Hz.
    dict of int to float
        For the place of a word's first character in `text`, from 0: when
        the word begins, in seconds. eSpeak runs some pairs together, such as
        "of the", and then has only the first.

    Raises
    ------
    SynthesisError
        As `speak`.

    Example
    -------
    >>> _, _, starts = speak_timed("good morning", "en-us")
    >>> sorted(starts), starts[0] < starts[5]
    ([0, 5], True)
    """
    blocks: list[np.ndarray] = []
    starts: dict[int, float] = {}

    @_CALLBACK
    def receive(samples: Any, count: int, events: Any) -> int:
        for event in _until_terminated(events):
            if event.type == _WORD:
                place = event.text_position - 1
                starts.setdefault(place, event.audio_position / 1000)
        if samples and count > 0:
            # The buffer is eSpeak's and is used again: copy it.
            block = np.ctypeslib.as_array(samples, shape=(count,)).copy()
            blocks.append(block)
        return 0

    with _library() as (library, sample_rate, data):
        variant = voice.partition("+")[2]
        # eSpeak itself passes over a variant that it does not have.
        known = not variant or (data / "voices" / "!v" / variant).is_file()
        if not known or library.espeak_SetVoiceByName(voice.encode()):
            raise SynthesisError(
                f"eSpeak NG has no voice {voice!r}; use one that it has"
            )
        settings = {"rate": rate, "pitch": pitch, "pitch_range": pitch_range}
        for name, value in settings.items():
            library.espeak_SetParameter(_PARAMETERS[name], value, 0)
        library.espeak_SetSynthCallback(receive)
        status = _say(library, text.encode())
    samples = np.concatenate(blocks) if blocks else np.zeros(0, np.int16)
    if status != 0 or not samples.any():
        raise SynthesisError(
            f"eSpeak NG said nothing for {text!r} (status {status}); "
            "give it words"
        )
    return samples, sample_rate, starts


def _until_terminated(events: Any) -> Iterator[_Event]:
    for index in itertools.count():
        if events[index].type == _LIST_TERMINATED:
            return
        yield events[index]


def _say(library: ctypes.CDLL, text: bytes) -> int:
    library.espeak_Synth.argtypes = [
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_uint,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_uint,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    status: int = library.espeak_Synth(
        text, len(text) + 1, 0, _POSITION_CHARACTER, 0, _UTF8, None, None
    )
    return status


@contextmanager
def _library() -> Iterator[tuple[ctypes.CDLL, int, Path]]:
    """The library started, its sample rate and its data folder."""
    try:
        import espeakng_loader
    except ImportError as error:
        raise SynthesisError(
            "the speech synthesizer is not installed; run "
            'pip install "mala_asr[demo]"'
        ) from error
    try:
        library = ctypes.CDLL(espeakng_loader.get_library_path())
        data = Path(espeakng_loader.get_data_path())
    except (OSError, RuntimeError) as error:
        raise SynthesisError(
            f"the speech synthesizer cannot be loaded ({error}); run "
            "pip install --force-reinstall espeakng-loader"
        ) from error
    try:
        rate = library.espeak_Initialize(
            _SYNCHRONOUS_OUTPUT, 0, os.fsencode(data), _DONT_EXIT
        )
        if rate <= 0:
            raise SynthesisError(
                "eSpeak NG does not start; run "
                "pip install --force-reinstall espeakng-loader"
            )
        yield library, rate, data
        library.espeak_Terminate()
    finally:
        _unload(library)


def _unload(library: ctypes.CDLL) -> None:
    # ctypes itself never unloads.
    close = getattr(_ctypes, "FreeLibrary", None) or _ctypes.dlclose
    close(library._handle)
