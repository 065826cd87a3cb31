"""Joint CTC/attention beam search against SpeechBrain's searcher.

Both search the same encoder output of the same model, one utterance at a
time and in turns, so that a busy machine slows both alike. What they find is
compared as well. The encoder, which they share, is not timed.

Without a model and audio of your own, an untrained model with the sizes of
hparams/mini_librispeech_mala.yaml listens to noise; it writes more tokens in
a second than speech has, about 24.

  python -m mala_asr.benchmarks.decoding
  python -m mala_asr.benchmarks.decoding --model MODEL --audio data/dev-clean
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from tqdm import tqdm

from mala_asr.arguments import positive, positive_float
from mala_asr.benchmarks.command import run_benchmark
from mala_asr.benchmarks.host_search import HostBeamSearch
from mala_asr.benchmarks.tables import table_head, table_row
from mala_asr.data.audio import audio_info, read_audio
from mala_asr.data.tokenizer import load_tokenizer, train_tokenizer
from mala_asr.decoding.joint import JointBeamSearch, Search
from mala_asr.errors import MalaError
from mala_asr.inference.model_folder import load_model_folder
from mala_asr.models import MalaASR
from mala_asr.paths import hparams_file
from mala_asr.training.config import build_config, read_config

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

CONFIG = "mini_librispeech_mala"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ'"
AUDIO_SUFFIXES = {".flac", ".wav"}

# Steps in a row of the table of steps.
STEP_GROUP = 50


@dataclass
class Found:
    """What one search found in an utterance, and how long it took.

    Arguments
    ---------
    n_best : list of (list of int, float)
        Tokens and score of each hypothesis, the best first.
    seconds : float
        Time of the whole search.
    step_seconds : list of float
        Time of each of its steps.
    """

    n_best: list[tuple[list[int], float]]
    seconds: float
    step_seconds: list[float]


class HostSide:
    """SpeechBrain's searcher.

    Arguments
    ---------
    model : MalaASR
        The model.
    args : argparse.Namespace
        ``beam_size``, ``ctc_weight`` and ``all_tokens``.
    """

    name = "SpeechBrain"

    def __init__(self, model: MalaASR, args: argparse.Namespace) -> None:
        self._search = HostBeamSearch(
            model,
            args.beam_size,
            args.ctc_weight,
            n_best=args.beam_size,
            all_tokens=args.all_tokens,
        )

    def search(self, enc: Tensor, lengths: Tensor) -> Found:
        """Search one utterance.

        Arguments
        ---------
        enc : Tensor
            Encoder output, (1, frames, d_model).
        lengths : Tensor
            Its frames, (1,).

        Returns
        -------
        Found
        """
        start = time.perf_counter()
        (n_best,) = self._search(enc, lengths)
        seconds = time.perf_counter() - start
        return Found(n_best, seconds, self._search.step_seconds)


class OurSide:
    """This project's search.

    Arguments
    ---------
    model : MalaASR
        The model.
    tokenizer : SentencePieceProcessor
        Its tokenizer.
    args : argparse.Namespace
        ``beam_size``, ``ctc_weight`` and ``all_tokens``.
    """

    name = "mala_asr"

    def __init__(
        self,
        model: MalaASR,
        tokenizer: SentencePieceProcessor,
        args: argparse.Namespace,
    ) -> None:
        self._settings = JointBeamSearch(
            model,
            tokenizer,
            args.beam_size,
            args.ctc_weight,
            candidates=len(tokenizer) if args.all_tokens else None,
        )

    @torch.inference_mode()
    def search(self, enc: Tensor, lengths: Tensor) -> Found:
        """Search one utterance.

        Arguments
        ---------
        enc : Tensor
            Encoder output, (1, frames, d_model).
        lengths : Tensor
            Its frames, (1,).

        Returns
        -------
        Found
        """
        times = [time.perf_counter()]
        search = Search(self._settings, enc, lengths)
        started = time.perf_counter()
        while search.running:
            search.step()
            times.append(time.perf_counter())
        (found,) = search.hypotheses()
        seconds = time.perf_counter() - times[0]
        times[0] = started
        steps = [after - before for before, after in pairwise(times)]
        return Found([(h.tokens, h.score) for h in found], seconds, steps)


def measure(
    sides: Sequence[HostSide | OurSide],
    model: MalaASR,
    waves: Sequence[Tensor],
) -> Iterator[list[Found]]:
    """Let the sides search the same utterances, in turns.

    Arguments
    ---------
    sides : sequence
        The searches.
    model : MalaASR
        Encodes the utterances for all of them.
    waves : sequence of Tensor
        Mono samples at the model's rate, (samples,) each.

    Yields
    ------
    list of Found
        What each side found, utterance by utterance.
    """
    # The first search pays for memory that later ones find.
    warm_up = [waves[0][: model.sample_rate]]
    for number, wave in enumerate(tqdm([*warm_up, *waves], unit="utterance")):
        with torch.no_grad():
            feats = model.features(wave[None], torch.tensor([len(wave)]))
            enc, lengths = model.encode(*feats)
        found = [side.search(enc, lengths) for side in sides]
        if number >= len(warm_up):
            yield found


def report(host: Sequence[Found], ours: Sequence[Found]) -> str:
    """Write the results out as tables.

    Arguments
    ---------
    host, ours : sequence of Found
        What each side found in the same utterances.

    Returns
    -------
    str
        Speeds, agreement, and the time of a step as the output grows.

    Example
    -------
    >>> host = [Found([([4], -0.5), ([5], -0.9)], 2.0, [1.0, 1.0])]
    >>> ours = [Found([([4], -0.5), ([6], -0.9)], 0.1, [0.05, 0.05])]
    >>> print(report(host, ours))  # doctest: +ELLIPSIS
    | search | time of an utterance | of a step | ratio (range) |
    |---|---|---|---|
    | SpeechBrain | 2.000 s | 1000.00 ms | 1.0x (1.0-1.0) |
    | mala_asr | 0.100 s | 50.00 ms | 20.0x (20.0-20.0) |
    <BLANKLINE>
    | agreement | |
    |---|---|
    | the same best hypothesis | 1 of 1 (100.0 %) |
    ...
    """
    return "\n\n".join(
        "\n".join(table)
        for table in (
            _speed_table(host, ours),
            _agreement_table(host, ours),
            _step_table(host, ours),
        )
    )


def _speed_table(host: Sequence[Found], ours: Sequence[Found]) -> list[str]:
    lines = [
        table_head(
            ["search", "time of an utterance", "of a step", "ratio (range)"]
        )
    ]
    total = sum(found.seconds for found in host)
    for name, side in ((HostSide.name, host), (OurSide.name, ours)):
        seconds = [found.seconds for found in side]
        ratios = [h.seconds / s for h, s in zip(host, seconds, strict=True)]
        steps = [step for found in side for step in found.step_seconds]
        lines.append(
            f"| {name} | {statistics.mean(seconds):.3f} s "
            f"| {1000 * statistics.mean(steps):.2f} ms "
            f"| {total / sum(seconds):.1f}x "
            f"({min(ratios):.1f}-{max(ratios):.1f}) |"
        )
    return lines


def _agreement_table(host: Sequence[Found], ours: Sequence[Found]) -> list[str]:
    pairs = list(zip(host, ours, strict=True))
    same = [(h, o) for h, o in pairs if h.n_best[0][0] == o.n_best[0][0]]
    differences = [abs(h.n_best[0][1] - o.n_best[0][1]) for h, o in same]
    shares, n_best_differences = [], []
    for h, o in pairs:
        expected = {tuple(tokens): score for tokens, score in h.n_best}
        found = {tuple(tokens): score for tokens, score in o.n_best}
        both = expected.keys() & found.keys()
        shares.append(len(both) / len(expected))
        n_best_differences += [abs(expected[t] - found[t]) for t in both]
    lines = [
        "| agreement | |",
        "|---|---|",
        f"| the same best hypothesis | {len(same)} of {len(pairs)} "
        f"({100 * len(same) / len(pairs):.1f} %) |",
    ]
    if differences:
        lines.append(
            f"| largest difference of its score | {max(differences):.1e} |"
        )
    lines.append(
        "| SpeechBrain's n best that ours has too | "
        f"{100 * statistics.mean(shares):.1f} % |"
    )
    if n_best_differences:
        lines.append(
            "| largest difference of a score of these | "
            f"{max(n_best_differences):.1e} |"
        )
    return lines


def _step_table(host: Sequence[Found], ours: Sequence[Found]) -> list[str]:
    lines = [table_head(["tokens before a step", HostSide.name, OurSide.name])]
    longest = max(len(found.step_seconds) for found in (*host, *ours))
    for first in range(0, longest, STEP_GROUP):
        cells = [f"{first}-{first + STEP_GROUP - 1}"]
        for side in (host, ours):
            steps = [
                step
                for found in side
                for step in found.step_seconds[first : first + STEP_GROUP]
            ]
            cells.append(
                f"{1000 * statistics.mean(steps):.2f} ms" if steps else ""
            )
        lines.append(table_row(cells))
    return lines


def untrained_model(seed: int = 0) -> tuple[MalaASR, SentencePieceProcessor]:
    """Build a model of letters with random weights.

    Arguments
    ---------
    seed : int
        The same seed gives the same weights.

    Returns
    -------
    model : MalaASR
        With an attention decoder, in evaluation mode.
    tokenizer : SentencePieceProcessor
        Of 26 letters, apostrophe and space.

    Example
    -------
    >>> model, tokenizer = untrained_model()
    >>> model.has_decoder, len(tokenizer)
    (True, 32)
    """
    with tempfile.TemporaryDirectory() as folder:
        path = train_tokenizer([" ".join(LETTERS)], folder, kind="char")
        tokenizer = load_tokenizer(path)
    overrides = "data_folder: none\nctc_weight: 0.6"
    hparams = build_config(read_config(hparams_file(CONFIG), overrides))
    torch.manual_seed(seed)
    return hparams["model"](len(tokenizer)).eval(), tokenizer


def noise(count: int, seconds: float, rate: int, seed: int = 0) -> list[Tensor]:
    """Make utterances of noise.

    Arguments
    ---------
    count : int
        How many.
    seconds : float
        The length of each.
    rate : int
        Samples a second.
    seed : int
        The same seed gives the same noise.

    Returns
    -------
    list of Tensor
        Shape (samples,) each.

    Example
    -------
    >>> [len(wave) for wave in noise(2, 0.5, rate=16000)]
    [8000, 8000]
    """
    generator = torch.Generator().manual_seed(seed)
    samples = round(seconds * rate)
    return [
        0.1 * torch.randn(samples, generator=generator) for _ in range(count)
    ]


def recordings(
    folder: Path, count: int, seconds: float, rate: int
) -> list[Tensor]:
    """Read the recordings whose length is nearest to what is asked for.

    Arguments
    ---------
    folder : Path
        Searched for .flac and .wav at any depth.
    count : int
        How many to read at most.
    seconds : float
        The length asked for.
    rate : int
        Samples a second.

    Returns
    -------
    list of Tensor
        Shape (samples,) each.

    Raises
    ------
    MalaError
        If the folder has no audio or a file cannot be read.
    """
    lengths = {path: audio_info(path).duration for path in _audio(folder)}
    if not lengths:
        raise MalaError(
            f"no .flac or .wav in {folder}; give a folder of recordings"
        )
    nearest = sorted(lengths, key=lambda path: abs(lengths[path] - seconds))
    return [read_audio(path, sample_rate=rate) for path in nearest[:count]]


def _audio(folder: Path) -> Iterator[Path]:
    return (
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in AUDIO_SUFFIXES
    )


def _run(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    if args.model is None:
        source = f"untrained model of {CONFIG}"
        model, tokenizer = untrained_model()
    else:
        source = f"model {args.model}"
        loaded = load_model_folder(args.model)
        model, tokenizer = loaded.model, loaded.tokenizer
    ours = OurSide(model, tokenizer, args)
    if args.audio is None:
        source += ", noise"
        waves = noise(args.utterances, args.seconds, model.sample_rate)
    else:
        source += f", audio {args.audio}"
        waves = recordings(
            args.audio, args.utterances, args.seconds, model.sample_rate
        )
    results: list[list[Found]] = []
    try:
        for found in measure([HostSide(model, args), ours], model, waves):
            results.append(found)
    finally:
        # Also of what an interrupted run has searched.
        if results:
            searched = waves[: len(results)]
            print(f"{source}\n{_settings(args, model, searched)}\n")
            print(report(*zip(*results, strict=True)))


def _settings(
    args: argparse.Namespace, model: MalaASR, waves: Sequence[Tensor]
) -> str:
    lengths = [len(wave) / model.sample_rate for wave in waves]
    tokens = "all tokens" if args.all_tokens else f"{2 * args.beam_size} tokens"
    return (
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; "
        f"{len(waves)} utterances of {min(lengths):.1f} to "
        f"{max(lengths):.1f} s, beam {args.beam_size}, "
        f"CTC weight {args.ctc_weight} on {tokens} of each hypothesis"
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        type=Path,
        help="model folder, as mala-asr export writes it (default: untrained)",
    )
    parser.add_argument(
        "--audio",
        type=Path,
        help="folder of .flac or .wav (default: noise)",
    )
    parser.add_argument(
        "--utterances",
        type=positive,
        default=5,
        help="how many to search (default: 5)",
    )
    parser.add_argument(
        "--seconds",
        type=positive_float,
        default=10.0,
        help="their length, or what it should be nearest to (default: 10)",
    )
    parser.add_argument(
        "--beam_size",
        type=positive,
        default=10,
        help="hypotheses kept at each step (default: 10)",
    )
    parser.add_argument(
        "--ctc_weight",
        type=float,
        default=0.4,
        help="weight of the CTC score, 0 to below 1 (default: 0.4)",
    )
    parser.add_argument(
        "--all_tokens",
        action="store_true",
        help="let CTC score the whole vocabulary, on both sides",
    )
    parser.add_argument(
        "--threads",
        type=positive,
        default=1,
        help="of the processor (default: 1)",
    )


main = partial(run_benchmark, "decoding", __doc__, _add_arguments, _run)

if __name__ == "__main__":
    sys.exit(main())
