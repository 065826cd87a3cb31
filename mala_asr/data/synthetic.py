"""A multi-speaker English corpus made on the spot, in LibriSpeech's layout.

Sentences come from the grammar, voices from eSpeak NG. The whole corpus is
planned first, from the seed alone, and then spoken file by file: so it does
not depend on the number of processes, and an interrupted run goes on where it
stopped. Voices and sentences of training, dev and test are disjoint; every
word of dev and test occurs in training.
"""

from __future__ import annotations

import itertools
import json
import logging
import multiprocessing
import os
import random
import re
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from mala_asr.data.audio import SAMPLE_RATE
from mala_asr.data.espeak import SynthesisError, speak_timed
from mala_asr.data.files import replacing
from mala_asr.data.grammar import SentenceSource
from mala_asr.data.librispeech import CorpusError

logger = logging.getLogger(__name__)

TRAIN, DEV, TEST = "synth-train", "synth-dev", "synth-test"
# Speech of dev and of test for each second of training speech.
EVALUATION_SHARE = 1 / 15

SHORTEST, LONGEST = 2.0, 12.0  # seconds of an utterance
RATES = (130, 160)  # words a minute as eSpeak counts
PITCHES = (42, 58)  # 50 is the voice's own
PITCH_RANGES = (40, 70)
LEVELS = (-30.0, -22.0)  # dB of full scale, root mean square
NOISE_LEVEL = -62.0
PAUSES = (0.1, 0.3)  # seconds of silence at either end

UTTERANCES_IN_CHAPTER = 20
_TRIES = 20000
_VERSION = 1  # of what a plan and a seed mean


@dataclass(frozen=True)
class Speaker:
    """A voice and the split that it speaks in.

    Arguments
    ---------
    id : str
        Name of the speaker's folder.
    sex : str
        M or F, as the voice sounds.
    voice : str
        eSpeak's name of the voice.
    split : str
        Name of the split.

    Example
    -------
    >>> len({speaker.voice for speaker in SPEAKERS}) == len(SPEAKERS)
    True
    """

    id: str
    sex: str
    voice: str
    split: str


# None of these has a `breath`: see `speak`.
SPEAKERS = (
    Speaker("101", "M", "en-us", TRAIN),
    Speaker("102", "M", "en", TRAIN),
    Speaker("103", "M", "en-us+m3", TRAIN),
    Speaker("104", "M", "en-us+m4", TRAIN),
    Speaker("105", "M", "en-us+m7", TRAIN),
    Speaker("106", "M", "en-us+paul", TRAIN),
    Speaker("107", "M", "en+m6", TRAIN),
    Speaker("108", "F", "en-us+f4", TRAIN),
    Speaker("109", "F", "en-us+linda", TRAIN),
    Speaker("110", "F", "en-us+steph", TRAIN),
    Speaker("111", "F", "en+f4", TRAIN),
    Speaker("112", "F", "en+steph", TRAIN),
    Speaker("201", "M", "en-us+m2", DEV),
    Speaker("202", "F", "en-us+aunty", DEV),
    Speaker("301", "M", "en-us+m1", TEST),
    Speaker("302", "F", "en-us+f1", TEST),
)


@dataclass(frozen=True)
class PlannedUtterance:
    """What one file will hold.

    Arguments
    ---------
    speaker : Speaker
        Who says it.
    chapter : int
        Chapter of the speaker, from 1.
    number : int
        Place in the chapter, from 0.
    words : str
        What is said.
    rate : int
        Words a minute as eSpeak counts.
    pitch : int
        eSpeak's pitch.
    pitch_range : int
        eSpeak's pitch range.
    level : float
        Root mean square, in dB of full scale.
    noise_seed : int
        Seed of the faint noise and of the pauses.

    Example
    -------
    >>> said = PlannedUtterance(SPEAKERS[0], 1, 7, "GO ON", 150, 50, 50, -26, 1)
    >>> said.path.as_posix()
    'synth-train/101/1/101-1-0007.flac'
    """

    speaker: Speaker
    chapter: int
    number: int
    words: str
    rate: int
    pitch: int
    pitch_range: int
    level: float
    noise_seed: int

    @property
    def id(self) -> str:
        """Name of the utterance."""
        return f"{self.speaker.id}-{self.chapter}-{self.number:04d}"

    @property
    def path(self) -> Path:
        """Its file, below the LibriSpeech folder."""
        speaker = self.speaker
        folder = Path(speaker.split, speaker.id, str(self.chapter))
        return folder / f"{self.id}.flac"


def make_corpus(
    dest: str | os.PathLike[str],
    minutes: float = 45.0,
    seed: int = 0,
    workers: int | None = 2,
) -> Path:
    """Speak the corpus; what is there already is kept.

    With more than one worker, a script that calls this needs the usual
    `if __name__ == "__main__"`: the processes are spawned.

    Arguments
    ---------
    dest : str or os.PathLike
        Folder that gets a `LibriSpeech` folder with the splits synth-train,
        synth-dev and synth-test.
    minutes : float
        Minutes of training speech; dev and test get a fifteenth of it each.
    seed : int
        Another seed gives other sentences.
    workers : int, optional
        Processes; by default one for each CPU.

    Returns
    -------
    Path
        The LibriSpeech folder.

    Raises
    ------
    CorpusError
        If `dest` holds a corpus of other settings, or `minutes` is too small
        for a corpus.
    SynthesisError
        If eSpeak NG is not installed.

    Example
    -------
    >>> root = make_corpus(getfixture("tmp_path"), minutes=1, workers=1)
    >>> sorted(path.name for path in root.iterdir() if path.is_dir())
    ['synth-dev', 'synth-test', 'synth-train']
    """
    root = Path(dest) / "LibriSpeech"
    plan = plan_corpus(minutes, seed)
    _claim(root, {"version": _VERSION, "minutes": minutes, "seed": seed})
    missing = [said for said in plan if not (root / said.path).is_file()]
    if missing:
        _speak_all(root, missing, workers or os.cpu_count() or 1)
    _write_texts(root, plan)
    logger.info(
        "%s: %d utterances, %d of them new", root, len(plan), len(missing)
    )
    return root


def plan_corpus(minutes: float, seed: int = 0) -> list[PlannedUtterance]:
    """Decide who says what and how.

    Arguments
    ---------
    minutes : float
        Minutes of training speech.
    seed : int
        Another seed gives other sentences.

    Returns
    -------
    list of PlannedUtterance
        Training, dev and test, in this order.

    Raises
    ------
    CorpusError
        If so small a training set leaves no words for dev and test.

    Example
    -------
    >>> plan = plan_corpus(minutes=2)
    >>> len({said.words for said in plan}) == len(plan)
    True
    """
    if not minutes > 0:
        raise CorpusError(
            f"{minutes:g} minutes is no length; give a positive one"
        )
    taken: set[str] = set()
    train = _plan_split(TRAIN, minutes * 60, seed, taken, None)
    known = {word for said in train for word in said.words.split()}
    seconds = minutes * 60 * EVALUATION_SHARE
    return [
        *train,
        *_plan_split(DEV, seconds, seed, taken, known),
        *_plan_split(TEST, seconds, seed, taken, known),
    ]


def word_starts(said: PlannedUtterance) -> list[float | None]:
    """Tell when the words of an utterance begin in its file.

    Arguments
    ---------
    said : PlannedUtterance
        The utterance.

    Returns
    -------
    list of float or None
        Seconds, one for each word; None for a word that eSpeak runs together
        with the one before.

    Raises
    ------
    SynthesisError
        If eSpeak NG is missing.

    Example
    -------
    >>> said = PlannedUtterance(SPEAKERS[0], 1, 7, "GO ON", 150, 50, 50, -26, 1)
    >>> first, second = word_starts(said)
    >>> 0 < first < second
    True
    """
    *_, starts = _spoken(said)
    before, _ = _pauses(np.random.default_rng(said.noise_seed))
    return [
        None
        if match.start() not in starts
        else before / SAMPLE_RATE + starts[match.start()]
        for match in re.finditer(r"\S+", said.words)
    ]


def _plan_split(
    split: str,
    seconds: float,
    seed: int,
    taken: set[str],
    known: set[str] | None,
) -> list[PlannedUtterance]:
    """Utterances of the split's speakers, each with an equal share.

    Sentences in `taken` are left out and those chosen added to it; with
    `known`, sentences are of these words only.
    """
    rng = random.Random(f"{seed} {split}")
    source = SentenceSource(rng)
    speakers = [speaker for speaker in SPEAKERS if speaker.split == split]
    plan = []
    for speaker in speakers:
        left = seconds / len(speakers)
        for index in itertools.count():
            if left <= 0:
                break
            rate = rng.randint(*RATES)
            words = _new_sentence(source, rate, taken, known)
            taken.add(words)
            left -= _expected_seconds(words, rate)
            chapter, number = divmod(index, UTTERANCES_IN_CHAPTER)
            plan.append(
                PlannedUtterance(
                    speaker=speaker,
                    chapter=chapter + 1,
                    number=number,
                    words=words,
                    rate=rate,
                    pitch=rng.randint(*PITCHES),
                    pitch_range=rng.randint(*PITCH_RANGES),
                    level=round(rng.uniform(*LEVELS), 2),
                    noise_seed=rng.getrandbits(32),
                )
            )
    return plan


def _new_sentence(
    source: SentenceSource,
    rate: int,
    taken: set[str],
    known: set[str] | None,
) -> str:
    # An expected length may be off by a tenth, a short one by more.
    shortest, longest = SHORTEST * 1.25, LONGEST / 1.15
    for _ in range(_TRIES):
        words = source.draw()
        if (
            words not in taken
            and shortest <= _expected_seconds(words, rate) <= longest
            and (known is None or known.issuperset(words.split()))
        ):
            return words
    raise CorpusError(
        "so few minutes of training speech leave no sentence for dev and "
        "test; ask for more minutes"
    )


def _expected_seconds(words: str, rate: int) -> float:
    """Length of an utterance, from a fit to what eSpeak's voices need."""
    letters = sum(map(str.isalpha, words))
    count = len(words.split())
    return (0.059 * letters + 0.026 * count + 0.08) * 160 / rate + sum(PAUSES)


def _claim(root: Path, settings: dict[str, float]) -> None:
    """Mark `root` as a corpus of these settings, unless it is another."""
    stamp = root / "synthetic.json"
    if stamp.is_file():
        try:
            kept = json.loads(stamp.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CorpusError(
                f"{stamp} is damaged; delete {root} or choose another folder"
            ) from error
        if kept != settings:
            raise CorpusError(
                f"{root} holds a synthetic corpus of other settings ({kept}); "
                "delete it or choose another folder"
            )
    elif any((root / split).exists() for split in (TRAIN, DEV, TEST)):
        raise CorpusError(
            f"{root} holds synth-* folders that this command did not make; "
            "choose another folder"
        )
    else:
        with replacing(stamp) as temporary:
            temporary.write_text(json.dumps(settings))


def _speak_all(
    root: Path, plan: Sequence[PlannedUtterance], workers: int
) -> None:
    jobs = [(root / said.path, said) for said in plan]
    with tqdm(total=len(jobs), desc="synthesizing", unit="utt") as progress:
        for _ in _run(jobs, min(workers, len(jobs))):
            progress.update()


def _run(
    jobs: list[tuple[Path, PlannedUtterance]], workers: int
) -> Iterator[None]:
    if workers == 1:
        yield from map(_speak, jobs)
        return
    # Spawned: a process that already runs threads is not safe to fork.
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, context) as pool:
            with _ctrl_c_ignored():  # which the workers inherit
                spoken = pool.map(_speak, jobs, chunksize=8)
            yield from spoken
    except BrokenProcessPool as error:
        raise SynthesisError(
            "a synthesizing process died; run this again to go on, or with "
            "one worker to see why"
        ) from error


@contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """Start processes that Ctrl-C does not stop.

    It reaches every process of a terminal, and a worker that it stops while
    it waits for work leaves this one waiting for ever. Ending them is for
    this process alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are not for other threads
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _speak(job: tuple[Path, PlannedUtterance]) -> None:
    path, said = job
    speech, rate, _ = _spoken(said)
    audio = _resample(speech / 32768.0, rate, SAMPLE_RATE)
    with replacing(path) as temporary:
        soundfile.write(temporary, _record(audio, said), SAMPLE_RATE)


def _spoken(
    said: PlannedUtterance,
) -> tuple[np.ndarray, int, dict[int, float]]:
    return speak_timed(
        said.words.lower(),
        said.speaker.voice,
        rate=said.rate,
        pitch=said.pitch,
        pitch_range=said.pitch_range,
    )


def _resample(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Resample by cutting the spectrum; the ends must be silent."""
    # A whole number of blocks keeps the ratio of the lengths exact.
    block = rate // np.gcd(rate, wanted)
    samples = np.pad(samples, (0, -len(samples) % block))
    size = len(samples) * wanted // rate
    spectrum = np.fft.rfft(samples)[: size // 2 + 1]
    return np.fft.irfft(spectrum, size) * (wanted / rate)


def _record(speech: np.ndarray, said: PlannedUtterance) -> np.ndarray:
    """Pauses around the speech, a level, and a room's faint noise."""
    rng = np.random.default_rng(said.noise_seed)
    before, after = _pauses(rng)
    gain = 10 ** (said.level / 20) / np.sqrt(np.mean(speech**2))
    gain = min(gain, 0.95 / np.abs(speech).max())  # never clips
    audio = np.pad(speech * gain, (before, after))
    return audio + rng.normal(0, 10 ** (NOISE_LEVEL / 20), len(audio))


def _pauses(rng: np.random.Generator) -> tuple[int, int]:
    """Samples before and after the speech: the generator's first draws."""
    before, after = (int(rng.uniform(*PAUSES) * SAMPLE_RATE) for _ in "ab")
    return before, after


def _write_texts(root: Path, plan: Sequence[PlannedUtterance]) -> None:
    """Transcripts of every chapter, and the list of the speakers."""
    chapters: dict[Path, list[str]] = defaultdict(list)
    for said in plan:
        name = f"{said.speaker.id}-{said.chapter}.trans.txt"
        path = root / said.path.parent / name
        chapters[path].append(f"{said.id} {said.words}")
    for path, lines in chapters.items():
        _write_if_new(path, lines)
    speakers = [
        f"{speaker.id} | {speaker.sex} | {speaker.split} | {speaker.voice}"
        for speaker in SPEAKERS
    ]
    header = "; ID | SEX | SUBSET | eSpeak NG voice"
    _write_if_new(root / "SPEAKERS.TXT", [header, *speakers])


def _write_if_new(path: Path, lines: list[str]) -> None:
    # A file that is written again would look changed to `prepare`.
    text = "".join(f"{line}\n" for line in lines)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
