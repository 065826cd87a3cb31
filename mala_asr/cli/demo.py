"""Show the whole way, from speech to a transcript, with nothing to download.

Synthesizes a corpus of many voices, trains a small MALA Conformer on it,
evaluates it on voices and sentences it has not heard, exports the model and
transcribes a file with it. 6 to 15 minutes on two CPU cores; an interrupted
demo goes on where it was when it is run again.

  mala-asr demo
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path

HELP = "synthesize speech, train, evaluate, export and transcribe"

# The set of the report, and its own name for the reader.
_TEST_SET = "synth-test"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    parser.add_argument(
        "--output",
        metavar="DIR",
        default="demo_output",
        help="folder for corpus, run and model (default: %(default)s)",
    )
    parser.add_argument(
        "--device",
        default="cpu",
        help="cpu, cuda or cuda:N (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo and print its report.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        0; what goes wrong raises a MalaError.
    """
    print(run_demo(Path(args.output), device=args.device))
    return 0


def run_demo(
    folder: Path,
    minutes: float = 45.0,
    device: str = "cpu",
    **changes: object,
) -> str:
    """Do the demo's steps; those that an earlier run has done are kept.

    Arguments
    ---------
    folder : Path
        Where everything goes.
    minutes : float
        Minutes of training speech.
    device : str
        Where to train.
    **changes : object
        Keys of the demo's config to change.

    Returns
    -------
    str
        The report for the reader.
    """
    from speechbrain.utils.run_opts import RunOptions

    from mala_asr.data.synthetic import make_corpus
    from mala_asr.devices import find_device
    from mala_asr.inference.export import export_run
    from mala_asr.inference.transcriber import Transcriber
    from mala_asr.scoring.report import summary_text
    from mala_asr.training.train import run as train

    start = time.monotonic()
    device = str(find_device(device))  # or it is missed after the synthesis
    _announce("1/4 speech: synthesizing a corpus")
    corpus = make_corpus(folder / "corpus", minutes)

    _announce("2/4 training: manifests, tokenizer, model, word error rate")
    changes |= {
        "data_folder": str(corpus),
        "output_folder": str(folder / "run"),
    }
    reports = train(
        "demo",
        json.dumps(changes),  # JSON is YAML
        RunOptions.from_dictionary({"device": device}),
    )

    _announce("3/4 export: the model folder")
    model = export_run(folder / "run", folder / "model")

    _announce("4/4 transcription of a test file")
    report = reports[_TEST_SET]
    example = report.utterances[0]
    audio = next((corpus / _TEST_SET).rglob(f"{example.id}.flac"))
    (transcript,) = Transcriber(model, device=device).transcribe([str(audio)])

    command = f"mala-asr transcribe --model {shlex.quote(str(model))}"
    return "\n".join(
        (
            "",
            f"Word error rate on {_TEST_SET} (voices and sentences that "
            "training has not heard):",
            summary_text(report).rstrip(),
            f"Every word of it: {folder / 'run' / f'wer_{_TEST_SET}.txt'}",
            "",
            f"A test file: {audio}",
            f"  said:        {' '.join(example.reference)}",
            f"  transcribed: {transcript.text}",
            "",
            f"Model folder: {model}",
            "Use it on your own file (it knows the demo's synthetic voices "
            "and words):",
            f"  {command} recording.wav",
            f"Done in {(time.monotonic() - start) / 60:.1f} minutes.",
        )
    )


def _announce(step: str) -> None:
    print(f"mala-asr: {step}", file=sys.stderr, flush=True)
