"""eSpeak says what it is told, as it is told, or a clear line."""

import sys

import numpy as np
import pytest

from mala_asr.data.espeak import SynthesisError, speak, speak_timed
from mala_asr.data.synthetic import SPEAKERS

TEXT = "the doctor opened the wooden door"


def pitch_of(samples: np.ndarray, rate: int) -> float:
    """The lag from 2 to 20 ms at which the speech is most like itself."""
    middle = samples[len(samples) // 4 :][:8192].astype(float)
    spectrum = np.abs(np.fft.rfft(middle, 16384)) ** 2
    likeness = np.fft.irfft(spectrum)[: rate // 50]
    shortest = rate // 500
    return rate / (shortest + likeness[shortest:].argmax())


def test_a_faster_rate_is_shorter():
    slow, fast = (
        len(speak(TEXT, "en-us", rate=rate)[0]) for rate in (130, 200)
    )
    assert slow > 1.3 * fast


def test_pitch_and_voice_are_obeyed():
    low, high = (
        pitch_of(*speak(TEXT, "en-us", pitch=pitch)) for pitch in (20, 80)
    )
    woman = pitch_of(*speak(TEXT, "en-us+f1"))
    assert 60 < low < high and woman > low


def test_pitch_range_is_obeyed():
    flat, lively = (
        speak(TEXT, "en-us", pitch_range=amount)[0] for amount in (0, 90)
    )
    assert not np.array_equal(flat, lively)


@pytest.mark.parametrize("voice", [speaker.voice for speaker in SPEAKERS])
def test_the_same_words_sound_the_same_whatever_was_said_before(voice):
    first, _ = speak(TEXT, voice, rate=150)
    speak("something else", "en+f4", pitch=90)
    again, _ = speak(TEXT, voice, rate=150)
    assert np.array_equal(first, again)


@pytest.mark.parametrize("voice", ["no-such", "en-us+nobody"])
def test_an_unknown_voice_is_refused(voice):
    with pytest.raises(SynthesisError, match="has no voice '.*(such|nobody)'"):
        speak(TEXT, voice)


def test_nothing_to_say_is_refused():
    with pytest.raises(SynthesisError, match="give it words"):
        speak("", "en-us")


def test_a_missing_synthesizer_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(SynthesisError, match=r'pip install "mala_asr\[demo\]"'):
        speak(TEXT, "en-us")


def test_words_begin_one_after_the_other_within_the_sound():
    text = "three green apples fell"
    samples, rate, starts = speak_timed(text, "en-us", rate=120)
    assert sorted(starts) == [0, 6, 12, 19]
    times = [starts[place] for place in sorted(starts)]
    assert times == sorted(set(times))
    assert 0 <= times[0] and times[-1] < len(samples) / rate
    # Said more slowly, the same words begin later.
    _, _, slower = speak_timed(text, "en-us", rate=80)
    assert slower[19] > starts[19]
    assert np.array_equal(samples, speak(text, "en-us", rate=120)[0])
