"""Report versions, audio formats and devices, and what is missing.

What is missing comes with the remedy. The exit status is 1 if the package
cannot work without something that is missing or does not work.

  mala-asr doctor
"""

import argparse
import json
from dataclasses import asdict
from itertools import groupby

HELP = "report what this installation has and lacks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the report.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        0, or 1 if something does not work.
    """
    from mala_asr.inference.doctor import FAILED, examine

    findings = examine()
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for topic, group in groupby(findings, lambda found: found.topic):
            print(f"{topic}:")
            for found in group:
                print(f"  {found.status:7}  {found.text}")
    return int(any(found.status == FAILED for found in findings))
