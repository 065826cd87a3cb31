"""Word error rate and speed of every decoder of a model, in one table.

Each decoder is tuned on a set of its own, with every language model and
without, and then decodes the other sets from their files: the real-time
factor is the time of reading, encoding and decoding by the audio's duration.
`rescore` has the weights of language model and words that were best for
`ctc_beam`; only its weight of CTC is tuned.

  python -m mala_asr.benchmarks.decoders --model MODEL \\
      --dev manifests/dev-clean-2.csv --test manifests/test-clean.csv \\
      --lm lm/word.bin --lm lm/piece.bin
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from mala_asr.benchmarks.command import add_model, run_benchmark
from mala_asr.benchmarks.tables import table_head, table_row
from mala_asr.data.manifest import Utterance, read_manifest
from mala_asr.decoding import DECODERS, DecodingOptions
from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.options import NO_LM, uses_lm
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.devices import find_device
from mala_asr.inference.model_folder import LoadedModel, load_model_folder
from mala_asr.inference.tuning import (
    BATCH_SECONDS,
    EncodedSet,
    grid_of,
    tune,
)
from mala_asr.training.evaluate import evaluate_set


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--dev", required=True, metavar="CSV", help="manifest to tune on"
    )
    parser.add_argument(
        "--test",
        action="append",
        default=[],
        metavar="CSV",
        help="manifest to measure on; may be repeated",
    )
    parser.add_argument(
        "--lm",
        action="append",
        default=[],
        metavar="FILE",
        help="language model; may be repeated",
    )
    parser.add_argument(
        "--decoders",
        nargs="+",
        default=list(DECODERS),
        choices=DECODERS,
        help="(default: all that the model has)",
    )


def _run(args: argparse.Namespace) -> None:
    device = find_device(args.device)
    sets = {Path(name).stem: read_manifest(name) for name in args.test}
    loaded = load_model_folder(args.model)
    loaded.model.to(device)
    dev = EncodedSet(loaded.model, loaded.tokenizer, read_manifest(args.dev))
    print(f"{args.model} on {device}, {torch.get_num_threads()} threads")
    print(f"tuned on {Path(args.dev).stem}, {len(dev.utterances)} utterances")
    print()
    titles = [f"{name}: WER % (real-time factor)" for name in sets]
    print(table_head(["decoder", "language model", "options", *titles]))
    searches: dict[str | None, DecodingOptions] = {}
    for decoder, lm in _rows(args.decoders, args.lm, loaded):
        options = DecodingOptions(decoder, lm=lm)
        if decoder == "rescore" and lm in searches:
            found = searches[lm].given()
            options = options.changed({**found, "decoder": decoder})
        options = _tuned(dev, options)
        if decoder == "ctc_beam":
            searches[lm] = options
        cells = [decoder, _lm_name(lm), _flags(options)]
        cells += [_measured(loaded, options, sets[name]) for name in sets]
        print(table_row(cells), flush=True)


def _rows(
    decoders: Sequence[str], lms: Sequence[str], loaded: LoadedModel
) -> Iterator[tuple[str, str | None]]:
    for decoder in decoders:
        if decoder in ("joint", "rescore") and not loaded.model.has_decoder:
            continue
        yield from (
            (decoder, lm)
            for lm in ([NO_LM, *lms] if uses_lm(decoder) else [None])
        )


def _tuned(dev: EncodedSet, options: DecodingOptions) -> DecodingOptions:
    known = options.given()
    try:
        grid = grid_of(options, {})
    except DecodingError:  # nothing to tune
        return options
    grid = {name: grid[name] for name in grid if name not in known}
    points = math.prod(map(len, grid.values()))
    with tqdm(total=points, desc=f"{options.decoder}, {options.lm}") as bar:
        return tune(dev, options, grid, lambda _: bar.update()).options


def _lm_name(lm: str | None) -> str:
    return "" if lm in (None, NO_LM) else Path(str(lm)).stem


def _flags(options: DecodingOptions) -> str:
    shown = {
        name: value
        for name, value in options.given().items()
        if name not in ("decoder", "lm")
    }
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def _measured(
    loaded: LoadedModel,
    options: DecodingOptions,
    utterances: Sequence[Utterance],
) -> str:
    recognizer = Recognizer(loaded.model, loaded.tokenizer, options)
    start = time.perf_counter()
    report = evaluate_set(recognizer, utterances, BATCH_SECONDS, progress=False)
    elapsed = time.perf_counter() - start
    seconds = sum(utterance.duration for utterance in utterances)
    rate = "n/a" if report.wer is None else f"{report.wer:.2f}"
    return f"{rate} ({elapsed / seconds:.3f})"


main = partial(run_benchmark, "decoders", __doc__, _add_arguments, _run)

if __name__ == "__main__":
    sys.exit(main())
