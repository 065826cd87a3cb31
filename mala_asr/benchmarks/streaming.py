"""Streams: word error rate and latency against the size of a chunk.

Each utterance of a manifest is fed as it would arrive, 20 ms at a time. The
latency of a word is the time from its end to the moment at which the audio had
arrived that showed it complete for the first time, plus what computing took
since the last chunk; where words end is what the stream itself says. Full
context, which has to wait for the end, stands beside.

  python -m mala_asr.benchmarks.streaming --model MODEL --set test.csv
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import mean, quantiles

import torch
from tqdm import tqdm

from mala_asr.arguments import positive_float
from mala_asr.benchmarks.command import add_model, run_benchmark
from mala_asr.benchmarks.tables import table_head, table_row
from mala_asr.data.audio import read_audio
from mala_asr.data.manifest import Utterance, read_manifest
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.devices import find_device
from mala_asr.inference.model_folder import load_model_folder
from mala_asr.inference.stream import SpeechStream
from mala_asr.scoring.wer import score

_PIECE = 0.02  # seconds that arrive at once
CHUNKS = (0.16, 0.32, 0.64, 1.28, 2.56)
_TITLES = (
    "chunk (s)",
    "past (s)",
    "WER (%)",
    "latency of a word (s): mean",
    "95th percentile",
    "real-time factor",
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--set", required=True, metavar="CSV", help="manifest of utterances"
    )
    parser.add_argument(
        "--chunks",
        nargs="+",
        type=positive_float,
        default=list(CHUNKS),
        metavar="S",
        help="seconds (default: 0.16 0.32 0.64 1.28 2.56)",
    )
    parser.add_argument(
        "--left",
        nargs="+",
        type=positive_float,
        default=[],
        metavar="S",
        help="seconds of the past to see, beside all of it",
    )


@dataclass
class Heard:
    """What streams made of a set.

    Arguments
    ---------
    texts : dict of str to str
        By utterance.
    latencies : list of float
        Seconds of each word.
    busy : float
        Seconds of computing.

    Example
    -------
    >>> Heard({"a": "GO ON"}, [0.3, 0.5], 0.01).latencies
    [0.3, 0.5]
    """

    texts: dict[str, str] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    busy: float = 0.0


def listen(stream: SpeechStream, wave: torch.Tensor, rate: int) -> Heard:
    """Feed a stream as audio arrives.

    Arguments
    ---------
    stream : SpeechStream
        A new one.
    wave : torch.Tensor
        Samples, (samples,).
    rate : int
        In Hz.

    Returns
    -------
    Heard
        With one text, under the key "".
    """
    heard = Heard()
    final: list[str] = []
    shown: list[tuple[str, float]] = []
    arrived = 0
    pieces = wave.split(round(_PIECE * rate))
    for number in range(len(pieces) + 1):
        started = time.perf_counter()
        if number < len(pieces):
            arrived += len(pieces[number])
            results = stream.push(pieces[number])
        else:
            results = stream.finish()
        took = time.perf_counter() - started
        heard.busy += took
        for result in results:
            texts = [*final, *(word.text for word in result.words)]
            # A word that has grown is shown anew.
            while [text for text, _ in shown] != texts[: len(shown)]:
                shown.pop()
            for text in texts[len(shown) :]:
                shown.append((text, arrived / rate + took))
            if result.final:
                moments = shown[len(final) : len(texts)]
                heard.latencies += [
                    moment - word.end
                    for (_, moment), word in zip(
                        moments, result.words, strict=True
                    )
                ]
                final = texts
    heard.texts[""] = " ".join(final)
    return heard


def _run(args: argparse.Namespace) -> None:
    loaded = load_model_folder(args.model)
    loaded.model.to(find_device(args.device))
    recognizer = Recognizer(loaded.model, loaded.tokenizer)
    utterances = read_manifest(args.set)
    waves = {
        u.id: read_audio(u.wav, u.start, u.stop, loaded.model.sample_rate)
        for u in utterances
    }
    seconds = sum(utterance.duration for utterance in utterances)
    said = {utterance.id: utterance.wrd for utterance in utterances}
    print(
        f"{args.model}; {args.set}: {len(utterances)} utterances, "
        f"{seconds / 60:.1f} min; {torch.get_num_threads()} threads"
    )
    print()
    print(table_head(_TITLES))
    for chunk, left in _settings(args):
        heard = _heard(recognizer, waves, chunk, left)
        rate = score(said, heard.texts).wer
        tail = quantiles(heard.latencies, n=20)[-1]
        cells = [
            f"{chunk:g}",
            "all" if left is None else f"{left:g}",
            f"{rate:.2f}",
            f"{mean(heard.latencies):.2f}",
            f"{tail:.2f}",
            f"{heard.busy / seconds:.4f}",
        ]
        print(table_row(cells), flush=True)
    print(_full_context(recognizer, utterances, waves))


def _settings(
    args: argparse.Namespace,
) -> Iterator[tuple[float, float | None]]:
    for chunk in args.chunks:
        for left in (None, *args.left):
            yield chunk, left


def _heard(
    recognizer: Recognizer,
    waves: dict[str, torch.Tensor],
    chunk: float,
    left: float | None,
) -> Heard:
    whole = Heard()
    for name, wave in tqdm(waves.items(), desc=f"chunks of {chunk:g} s"):
        stream = SpeechStream(recognizer, chunk, left)
        one = listen(stream, wave, recognizer.model.sample_rate)
        whole.texts[name] = one.texts[""]
        whole.latencies += one.latencies
        whole.busy += one.busy
    return whole


def _full_context(
    recognizer: Recognizer,
    utterances: Sequence[Utterance],
    waves: dict[str, torch.Tensor],
) -> str:
    started = time.perf_counter()
    found = {
        name: recognizer.waves([wave])[0].text for name, wave in waves.items()
    }
    elapsed = time.perf_counter() - started
    rate = score({u.id: u.wrd for u in utterances}, found).wer
    seconds = sum(utterance.duration for utterance in utterances)
    late = "after the end"
    factor = f"{elapsed / seconds:.4f}"
    return table_row(["full context", "all", f"{rate:.2f}", late, late, factor])


main = partial(run_benchmark, "streaming", __doc__, _add_arguments, _run)

if __name__ == "__main__":
    sys.exit(main())
