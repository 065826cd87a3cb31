"""The command ``mala-asr``: one thin module for each subcommand.

A subcommand's module gives ``HELP``, ``add_arguments(parser)`` and
``run(args) -> int``, and loads torch only inside ``run``: help and usage
errors come at once.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib import import_module

import mala_asr
from mala_asr.errors import exit_status

# In the order in which a newcomer meets them.
COMMANDS = (
    "demo",
    "download",
    "synthesize",
    "prepare",
    "tokenizer",
    "train",
    "export",
    "train-lm",
    "tune-decoder",
    "transcribe",
    "score",
    "inspect",
    "models",
    "doctor",
)

DESCRIPTION = """\
Speech recognition with magnitude-aware linear attention (MALA).

commands:
{commands}

Try the whole way, from synthetic speech to a transcript, in one command:
  mala-asr demo

Transcribe your own recordings with a model folder:
  mala-asr transcribe --model MODEL recording.wav

'mala-asr COMMAND --help' explains a command.
"""

EPILOG = """\
Results go to stdout, progress and messages to stderr.
Exit status: 0 all well, 1 something failed, 2 wrong usage, 130 interrupted.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Arguments
    ---------
    argv : Sequence[str], optional
        The arguments after the program's name; those of the process if None.

    Returns
    -------
    int
        Exit status: 0 all well, 1 something failed, 2 wrong usage, 130
        interrupted.

    Raises
    ------
    SystemExit
        With status 2 on wrong usage, with 0 after ``--help``.

    Example
    -------
    >>> main(["score", "no-such-file.trn", "hyp.trn"])
    1
    """
    return exit_status("mala-asr", lambda: _run(argv))


def module_of(command: str) -> str:
    """Name the module of a subcommand.

    Arguments
    ---------
    command : str
        The subcommand.

    Returns
    -------
    str
        Its module's full name.

    Example
    -------
    >>> module_of("train-lm")
    'mala_asr.cli.train_lm'
    """
    return f"mala_asr.cli.{command.replace('-', '_')}"


def _run(argv: Sequence[str] | None) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    _log_to_stderr()
    status: int = args.run(args)
    return status


def _parser() -> argparse.ArgumentParser:
    modules = {name: import_module(module_of(name)) for name in COMMANDS}
    listing = (f"  {name:13}{mod.HELP}" for name, mod in modules.items())
    parser = argparse.ArgumentParser(
        prog="mala-asr",
        usage="mala-asr [-h] [--version] COMMAND ...",
        description=DESCRIPTION.format(commands="\n".join(listing)),
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"mala-asr {mala_asr.__version__}",
    )
    # Listed in the description instead, where long names keep to one line.
    commands = parser.add_subparsers(
        dest="command", prog="mala-asr", help=argparse.SUPPRESS
    )
    for name, module in modules.items():
        command = commands.add_parser(
            name,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def _log_to_stderr() -> None:
    # Results go to stdout, everything else to stderr. SpeechBrain's own
    # remarks are kept to its warnings.
    logging.basicConfig(
        format="mala-asr: %(message)s", level=logging.WARNING, force=True
    )
    logging.getLogger("mala_asr").setLevel(logging.INFO)


if __name__ == "__main__":
    sys.exit(main())
