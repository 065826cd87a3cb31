"""Long recordings: what one pass takes, and how well each way hears.

`cost` decodes noise of several lengths in one pass, with the untrained model
of a config, each length in a process of its own: time, peak memory and what
was predicted. `wer` joins consecutive utterances of a manifest into recordings
of several lengths, without anything between them, and decodes each recording
in one pass, in chunks and cut at its quietest moments, and its utterances one
by one. A model that has heard single sentences may not put a space between two
that it hears together, so letters are scored without spaces too.

  python -m mala_asr.benchmarks.long_form cost
  python -m mala_asr.benchmarks.long_form wer --model MODEL \\
      --set manifests/test-other.csv --minutes 5 10 20 40
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from statistics import median
from typing import Any

import torch
from tqdm import tqdm

from mala_asr.arguments import positive, positive_float
from mala_asr.benchmarks.command import add_model, run_benchmark
from mala_asr.benchmarks.sides import CONFIG, build_model, shared_config
from mala_asr.benchmarks.tables import table_head, table_row
from mala_asr.data.audio import read_audio
from mala_asr.data.manifest import Utterance, read_manifest
from mala_asr.decoding import DecodingOptions
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.devices import find_device
from mala_asr.inference.long_form import LongFormDecoder
from mala_asr.inference.memory import one_pass_bytes
from mala_asr.inference.model_folder import LoadedModel, load_model_folder
from mala_asr.inference.segmentation import CHUNK_LENGTH, Segmentation
from mala_asr.inference.transcript import Recording, Transcript
from mala_asr.models import MalaASR
from mala_asr.scoring.wer import score
from mala_asr.training.memory import peak_memory

WAYS = ("one-pass", "chunks", "silence")
_MIB = 2**20
_DECODER = "ctc_greedy"
_COST_TITLES = (
    "length (s)",
    "time (s)",
    "real-time factor",
    "against the first",
    "peak (MiB)",
    "of it before (MiB)",
    "predicted (MiB)",
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True)
    cost = commands.add_parser("cost", help="time and memory of one pass")
    cost.add_argument(
        "--seconds",
        nargs="+",
        type=positive,
        default=[60, 600, 1800, 3600],
        help="lengths (default: 60 600 1800 3600)",
    )
    cost.add_argument("--repeats", type=positive, default=3)
    cost.set_defaults(run=_run_cost)
    wer = commands.add_parser("wer", help="word error rates of every way")
    add_model(wer)
    wer.add_argument(
        "--set", required=True, metavar="CSV", help="manifest of utterances"
    )
    wer.add_argument(
        "--minutes",
        nargs="+",
        type=positive_float,
        default=[5.0, 10.0, 20.0, 40.0],
        help="lengths to join utterances to (default: 5 10 20 40)",
    )
    wer.add_argument(
        "--within",
        choices=("set", "chapter", "speaker"),
        default="set",
        help="what a recording does not go beyond (default: set)",
    )
    wer.add_argument(
        "--chunk-length", type=positive_float, default=CHUNK_LENGTH
    )
    wer.add_argument("--decoder", default=_DECODER)
    wer.set_defaults(run=_run_wer)


@dataclass(frozen=True)
class Cost:
    """What one pass over a recording took.

    Arguments
    ---------
    seconds : int
        Length of the recording.
    elapsed : float
        Seconds of computing, the median of the repeats.
    peak : int
        The most bytes that the process had in use.
    idle : int
        What it had in use before there was a recording.
    predicted : int
        Bytes that were predicted beyond that.

    Example
    -------
    >>> Cost(60, 0.6, 900, 700, 210).rtf
    0.01
    """

    seconds: int
    elapsed: float
    peak: int
    idle: int
    predicted: int

    @property
    def rtf(self) -> float:
        """Seconds of computing for a second of audio."""
        return self.elapsed / self.seconds


def measure(seconds: int, repeats: int) -> Cost:
    """Decode noise in one pass, in this process.

    Arguments
    ---------
    seconds : int
        Of noise.
    repeats : int
        How often; peak memory is that of all of them.

    Returns
    -------
    Cost
    """
    torch.manual_seed(0)
    model = build_model(shared_config()).eval()
    pieces: Any = _Pieces()
    long = LongFormDecoder(
        Recognizer(model, pieces, DecodingOptions(_DECODER)),
        Segmentation("one-pass"),
    )
    _decode_noise(long, model, 10)  # what is set up once
    idle = peak_memory()
    took = []
    for _ in range(repeats):
        started = time.perf_counter()
        _decode_noise(long, model, seconds)
        took.append(time.perf_counter() - started)
    predicted = one_pass_bytes(model, seconds, _DECODER)
    return Cost(seconds, median(took), peak_memory(), idle, predicted)


def _decode_noise(long: LongFormDecoder, model: MalaASR, seconds: int) -> None:
    wave = 0.1 * torch.randn(seconds * model.sample_rate)
    long.decode(wave, long.plan(seconds, "noise"))


class _Pieces:
    """A tokenizer of numbers: an untrained model has no words."""

    def pad_id(self) -> int:
        return 0

    def decode(self, tokens: list[int]) -> str:
        return " ".join(map(str, tokens))


def _run_cost(args: argparse.Namespace) -> None:
    print(
        f"{CONFIG}, {_DECODER}, {torch.get_num_threads()} threads, median of "
        f"{args.repeats}"
    )
    print()
    print(table_head(_COST_TITLES))
    first = None
    for seconds in args.seconds:
        # Peak memory is a process's own.
        with get_context("spawn").Pool(1) as pool:
            cost = pool.apply(measure, (seconds, args.repeats))
        first = first or cost
        cells = [
            f"{seconds}",
            f"{cost.elapsed:.2f}",
            f"{cost.rtf:.5f}",
            f"{cost.rtf / first.rtf:.2f}",
            f"{cost.peak / _MIB:.0f}",
            f"{cost.idle / _MIB:.0f}",
            f"{(cost.idle + cost.predicted) / _MIB:.0f}",
        ]
        print(table_row(cells), flush=True)


def join_utterances(
    utterances: Sequence[Utterance], minutes: float, within: str = "set"
) -> list[list[Utterance]]:
    """Put consecutive utterances together to recordings.

    Arguments
    ---------
    utterances : sequence of Utterance
        In the order of their ids.
    minutes : float
        A recording ends with the utterance that makes it so long. What is
        left at the end joins the recording before it, or is one of its own
        where there is none.
    within : str
        ``set``, ``speaker`` or ``chapter``: what it does not go beyond.

    Returns
    -------
    list of list of Utterance

    Example
    -------
    >>> said = [Utterance(f"1-2-{n}", 20, "", "1", "HI") for n in range(8)]
    >>> [len(one) for one in join_utterances(said, 1.0)]
    [3, 5]
    """
    boundary: Callable[[Utterance], str] = {
        "set": lambda utterance: "",
        "speaker": lambda utterance: utterance.spk_id,
        "chapter": lambda utterance: utterance.id.rpartition("-")[0],
    }[within]
    joined: list[list[Utterance]] = []
    for _, group in groupby(utterances, boundary):
        own: list[list[Utterance]] = [[]]
        for utterance in group:
            if sum(u.duration for u in own[-1]) >= 60 * minutes:
                own.append([])
            own[-1].append(utterance)
        rest = own.pop()
        if own and sum(u.duration for u in rest) < 60 * minutes:
            own[-1] += rest
        else:
            own.append(rest)
        joined += own
    return joined


def _run_wer(args: argparse.Namespace) -> None:
    loaded = load_model_folder(args.model)
    loaded.model.to(find_device(args.device))
    utterances = sorted(read_manifest(args.set), key=lambda one: one.id)
    seconds = sum(utterance.duration for utterance in utterances)
    print(
        f"{args.model}, {args.decoder}; {args.set}: {len(utterances)} "
        f"utterances, {seconds / 60:.1f} min, joined within "
        f"{args.within}; chunks and segments of {args.chunk_length:g} s"
    )
    print("Word error rate in %, in brackets that of letters without spaces")
    print()
    titles = ["joined to (min)", "recordings", "of (min)", "per utterance"]
    print(table_head([*titles, *WAYS]))
    alone = _per_utterance(loaded, args, utterances)
    for minutes in args.minutes:
        joined = join_utterances(utterances, minutes, args.within)
        lengths = [sum(u.duration for u in one) / 60 for one in joined]
        cells = [
            f"{minutes:g}",
            f"{len(joined)}",
            f"{min(lengths):.1f} to {max(lengths):.1f}",
            f"{_rate(joined, alone)}",
        ]
        for way in WAYS:
            heard = dict(_by_recording(loaded, args, joined, way))
            cells.append(_rate(joined, heard))
        print(table_row(cells), flush=True)


def _long(
    loaded: LoadedModel, args: argparse.Namespace, way: str
) -> LongFormDecoder:
    options = DecodingOptions(args.decoder)
    return LongFormDecoder(
        Recognizer(loaded.model, loaded.tokenizer, options),
        Segmentation(way, args.chunk_length),
    )


def _per_utterance(
    loaded: LoadedModel,
    args: argparse.Namespace,
    utterances: Sequence[Utterance],
) -> dict[str, str]:
    recognizer = _long(loaded, args, "auto").recognizer
    heard = {}
    for utterance in tqdm(utterances, desc="per utterance"):
        (found,) = recognizer.waves([_read(utterance, loaded)])
        heard[utterance.id] = found.text
    return heard


def _by_recording(
    loaded: LoadedModel,
    args: argparse.Namespace,
    joined: Sequence[Sequence[Utterance]],
    way: str,
) -> Iterator[tuple[str, str]]:
    """The first utterance's id and the text, for each recording."""
    long = _long(loaded, args, way)
    for parts in tqdm(joined, desc=way):
        wave = torch.cat([_read(utterance, loaded) for utterance in parts])
        seconds = len(wave) / loaded.model.sample_rate
        segments = long.decode(wave, long.plan(seconds, parts[0].id))
        whole = Transcript(Recording("joined"), seconds, segments)
        yield parts[0].id, whole.text


def _rate(joined: Sequence[Sequence[Utterance]], heard: dict[str, str]) -> str:
    """Score recordings, whatever they were recognized by."""
    said = {one[0].id: " ".join(u.wrd for u in one) for one in joined}
    found = {
        one[0].id: " ".join(heard.get(u.id, "") for u in one) for one in joined
    }
    letters = score(*({i: _letters(t[i]) for i in t} for t in (said, found)))
    return f"{score(said, found).wer:.2f} ({letters.wer:.2f})"


def _letters(text: str) -> str:
    """Letters as words: their error rate does not depend on the spaces."""
    return " ".join("".join(text.split()))


def _read(utterance: Utterance, loaded: LoadedModel) -> torch.Tensor:
    return read_audio(
        utterance.wav,
        utterance.start,
        utterance.stop,
        loaded.model.sample_rate,
    )


def _run(args: argparse.Namespace) -> None:
    args.run(args)


main = partial(run_benchmark, "long_form", __doc__, _add_arguments, _run)

if __name__ == "__main__":
    sys.exit(main())
