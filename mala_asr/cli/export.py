"""Make a model folder of a training run.

The model folder holds the averaged weights, the tokenizer, the settings and
a model card, as data: loading it runs no code. The run is only read.

  mala-asr export results/mini_librispeech_mala/1986 my-model
  mala-asr transcribe --model my-model recording.wav

With --onnx or --torch-export the model goes in as a graph too, from samples
to log-probabilities, of any length. RUN may also be a model folder, which
then gets these.

  mala-asr export my-model my-model --onnx --quantize int8
  mala-asr transcribe --model my-model --backend onnx recording.wav
"""

import argparse
import shlex
import sys
from pathlib import Path

from mala_asr.arguments import positive
from mala_asr.errors import UsageError
from mala_asr.inference.engine import QUANTIZATIONS, STORED_DTYPES

HELP = "make a model folder of a training run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    parser.add_argument(
        "run_folder",
        metavar="RUN",
        help="output folder of a training, or a model folder",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="folder to write; a model folder that is there is replaced",
    )
    parser.add_argument(
        "--average",
        type=positive,
        metavar="N",
        help="average the N best checkpoints (default: as many as the run's "
        "evaluation)",
    )
    parser.add_argument(
        "--lm",
        metavar="FILE",
        help="language model of 'mala-asr train-lm', or an ARPA file, to put "
        "into the folder; 'transcribe' then uses it (default: that of the "
        "run's evaluation, if any)",
    )
    parser.add_argument(
        "--dtype",
        choices=STORED_DTYPES,
        default="float32",
        help="what the weights are stored in; float16 halves the folder, and "
        "the model computes in float32 either way (default: float32)",
    )
    parser.add_argument(
        "--notes",
        metavar="FILE",
        help="Markdown that goes into a training's model card",
    )
    parser.add_argument(
        "--onnx",
        action="store_true",
        help="put model.onnx in, for ONNX Runtime (extra: onnx)",
    )
    parser.add_argument(
        "--quantize",
        choices=QUANTIZATIONS,
        help="with --onnx: model.int8.onnx too, smaller and less exact",
    )
    parser.add_argument(
        "--torch-export",
        action="store_true",
        help="put model.pt2 in, for torch.export.load",
    )


def run(args: argparse.Namespace) -> int:
    """Write the folder and print where it is.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        0; what cannot be exported raises a MalaError.
    """
    if args.quantize and not args.onnx:
        raise UsageError("--quantize is of the graph that --onnx writes")
    from mala_asr.inference.export import (
        export_model_folder,
        export_run,
        is_model_folder,
    )
    from mala_asr.inference.model_folder import (
        EXPORTED_PROGRAM,
        ONNX,
        ONNX_INT8,
    )

    asked = {
        ONNX: args.onnx,
        ONNX_INT8: args.quantize == "int8",
        EXPORTED_PROGRAM: args.torch_export,
    }
    rest = (
        args.lm,
        [name for name, wanted in asked.items() if wanted],
        args.dtype,
    )
    if is_model_folder(args.run_folder):
        for option in ("average", "notes"):
            if getattr(args, option) is not None:
                raise UsageError(f"--{option} is of a training, not a model")
        print(export_model_folder(args.run_folder, args.model, *rest))
    else:
        notes = _notes(args.notes) if args.notes is not None else ""
        print(
            export_run(args.run_folder, args.model, args.average, *rest, notes)
        )
    print(
        "mala-asr: try it: mala-asr transcribe --model "
        f"{shlex.quote(args.model)} recording.wav",
        file=sys.stderr,
    )
    return 0


def _notes(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"--notes {path} is no text in UTF-8") from error
