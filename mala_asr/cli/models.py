"""List and describe model folders.

Searches the folders given, to their depth, and prints what each model is;
without any, that of the package and those below the folder you are in. A
model that is damaged is reported, and the exit status is then 1.

  mala-asr models
  mala-asr models models/ --json
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from mala_asr.errors import MalaError

if TYPE_CHECKING:
    from mala_asr.inference.model_list import ModelDescription

HELP = "list and describe model folders"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    parser.add_argument(
        "folders",
        metavar="FOLDER",
        nargs="*",
        help="where to search (default: the package, and here)",
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the descriptions.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        0, or 1 if a model cannot be used or none was found somewhere.
    """
    from mala_asr.inference.model_list import (
        describe_model,
        find_model_folders,
    )
    from mala_asr.inference.pretrained import pretrained_folder

    described: list[ModelDescription] = []
    failed = False
    seen = set()
    for root in args.folders or (pretrained_folder(), "."):
        found = list(find_model_folders(root))
        if not found and args.folders:
            failed = True
            _report(f"no model folder in {root}; make one by 'mala-asr export'")
        for folder in found:
            if folder.resolve() in seen:
                continue
            seen.add(folder.resolve())
            try:
                described.append(describe_model(folder))
            except MalaError as error:
                failed = True
                _report(str(error))
    if args.json:
        print(json.dumps([asdict(model) for model in described], indent=2))
    else:
        print("\n".join(map(_text, described)), end="")
    return int(failed)


def _text(model: ModelDescription) -> str:
    layers = f"{model.encoder_layers} encoder layers"
    if model.decoder_layers:
        layers += f", {model.decoder_layers} decoder layers"
    options = [
        f"{name} {value}"
        for name, value in model.decoding.items()
        if name not in ("decoder", "lm")
    ]
    decoder = ", ".join([model.decoding["decoder"], *options])
    results = ", ".join(
        f"{name} n/a" if wer is None else f"{name} {wer:.2f} %"
        for name, wer in model.results.items()
    )
    lines = (
        model.folder,
        f"  model       {model.attention}, {layers}, d_model {model.d_model}, "
        f"{model.parameters / 1e6:.2f} M parameters",
        f"  input       {model.sample_rate} Hz, frames of {model.frame_ms:g} "
        "ms",
        f"  tokens      {model.tokens}",
        f"  decoder     {decoder}"
        + (", language model in the folder" if model.language_model else ""),
        f"  WER         {results or 'not evaluated'}",
        f"  size        {model.bytes / 1e6:.1f} MB, written by mala_asr "
        f"{model.version}",
    )
    return "\n".join(lines) + "\n"


def _report(line: str) -> None:
    print(f"mala-asr: error: {line}", file=sys.stderr)
