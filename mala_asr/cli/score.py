"""Print the word error rate of hypotheses against references.

  mala-asr score ref.trn hyp.trn
  mala-asr score manifest.csv hyp.jsonl --per-speaker --by duration
  mala-asr score ref.stm hyp.ctm --normalize english --html report.html
  mala-asr score ref.trn a.trn --compare b.trn

A file is trn (`words (id)`), Kaldi text (`id words`), stm, ctm, JSON lines or
CSV (fields of id and words), or plain lines. Utterances are paired by id,
plain lines by their number, and the words of a ctm file go to the segments of
an stm file that they lie in. Words are compared as they are written, case and
punctuation included, unless --normalize says otherwise.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from mala_asr.arguments import positive
from mala_asr.scoring import (
    FORMATS,
    MISSING,
    NORMALIZERS,
    Analysis,
    ScoringError,
    Transcripts,
    analysis_record,
    analysis_text,
    analyze,
    read_transcripts,
    write_page,
    write_trn,
)

HELP = "print the word error rate of a file of hypotheses"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments.

    Arguments
    ---------
    parser : argparse.ArgumentParser
        The command's parser.
    """
    parser.add_argument(
        "ref", metavar="REF", help="file of what was said (references)"
    )
    parser.add_argument(
        "hyp", metavar="HYP", help="file of what was recognized (hypotheses)"
    )
    _add_reading(parser)
    _add_statistics(parser)
    _add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the report on stdout.

    Arguments
    ---------
    args : argparse.Namespace
        The parsed arguments.

    Returns
    -------
    int
        0, or 1 where the rate is above ``--fail-above``; a file that cannot
        be scored raises ScoringError.
    """
    references, *systems = _read(args)
    analysis = analyze(
        references,
        *systems,
        missing=args.missing,
        normalize=args.normalize,
        resamples=args.ci,
        seed=args.seed,
        speaker_pattern=args.speaker_pattern,
    )
    by = ["speaker"] * args.per_speaker + list(dict.fromkeys(args.by))
    wanted = {"by": by, "top": args.top, "align": args.align}
    if args.json:
        record = analysis_record(analysis, **wanted)
        text = json.dumps(record, ensure_ascii=False, indent=2) + "\n"
    else:
        text = analysis_text(analysis, **wanted)
    # Files first: a reader of stdout may go away, as `head` does.
    _write_files(args, analysis)
    print(text, end="")
    return _judge(analysis.report.wer, analysis.report.errors, args.fail_above)


def _add_reading(parser: argparse.ArgumentParser) -> None:
    reading = parser.add_argument_group("reading")
    reading.add_argument(
        "--format",
        choices=("auto", *FORMATS),
        default="auto",
        help="format of the files (default: auto, told from their names and "
        "lines)",
    )
    reading.add_argument(
        "--hyp-format",
        choices=("auto", *FORMATS),
        help="format of the hypotheses, where it is another (default: as "
        "--format)",
    )
    reading.add_argument(
        "--id-field",
        metavar="NAME",
        help="field of ids in JSON lines and CSV (default: id, utt_id, "
        "audio_filepath and other usual names)",
    )
    reading.add_argument(
        "--ref-field",
        metavar="NAME",
        help="field of words in the references (default: text, wrd and "
        "other usual names)",
    )
    reading.add_argument(
        "--hyp-field",
        metavar="NAME",
        help="field of words in the hypotheses (default: pred_text, "
        "hypothesis, text and other usual names)",
    )
    reading.add_argument(
        "--missing",
        choices=MISSING,
        default="error",
        help="an id that one side lacks: refuse it, take that side as empty, "
        "or leave the id out (default: error)",
    )
    reading.add_argument(
        "--normalize",
        choices=NORMALIZERS,
        default="none",
        help="basic: lower case and no punctuation; english: Whisper's "
        "normalizer; the rate before is printed too (default: none)",
    )


def _add_statistics(parser: argparse.ArgumentParser) -> None:
    statistics = parser.add_argument_group("statistics")
    statistics.add_argument(
        "--compare",
        metavar="HYP2",
        help="a second system's hypotheses; prints whether they differ from "
        "the first's by more than chance",
    )
    statistics.add_argument(
        "--ci",
        type=_whole,
        default=1000,
        metavar="N",
        help="resamples behind the confidence intervals, 0 for no intervals "
        "(default: 1000)",
    )
    statistics.add_argument(
        "--seed",
        type=_whole,
        default=0,
        metavar="N",
        help="seed of the resamples (default: 0)",
    )
    statistics.add_argument(
        "--per-speaker", action="store_true", help="also print each speaker"
    )
    statistics.add_argument(
        "--speaker-pattern",
        type=_pattern,
        metavar="REGEX",
        help="finds the speaker in an id, as its first group (default: a "
        "field of the files, else what stands before the first - or _)",
    )
    statistics.add_argument(
        "--by",
        choices=("duration", "set"),
        action="append",
        default=[],
        help="also print groups of one duration or set, where the files tell "
        "it; can be given twice",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("output")
    output.add_argument(
        "--align",
        action="store_true",
        help="also print each utterance word by word",
    )
    output.add_argument(
        "--top",
        type=positive,
        default=0,
        metavar="N",
        help="also print the N utterances with most errors and the N most "
        "frequent confusions",
    )
    output.add_argument(
        "--json", action="store_true", help="print all of it as JSON"
    )
    output.add_argument(
        "--html",
        metavar="FILE",
        help="write a page to look at, with every utterance and plots",
    )
    output.add_argument(
        "--trn-out",
        metavar="FOLDER",
        help="write ref.trn and hyp.trn as they were scored, for sclite and "
        "others",
    )
    output.add_argument(
        "--fail-above",
        type=_rate,
        metavar="RATE",
        help="exit with status 1 where the WER is above RATE percent",
    )


def _read(args: argparse.Namespace) -> list[Transcripts]:
    """References, hypotheses and, to be compared, those of a second system."""
    references = read_transcripts(
        args.ref,
        args.format,
        id_field=args.id_field,
        text_field=args.ref_field,
    )
    files = [references]
    segments = args.ref if references.file_format == "stm" else None
    for path in filter(None, (args.hyp, args.compare)):
        hypotheses = read_transcripts(
            path,
            args.hyp_format or args.format,
            hypothesis=True,
            id_field=args.id_field,
            text_field=args.hyp_field,
            segments=segments,
        )
        _check_formats(args.ref, references, path, hypotheses)
        files.append(hypotheses)
    _check_fields(args, files)
    if "auto" in (args.format, args.hyp_format):
        names = dict.fromkeys(file.file_format for file in files)
        print(f"mala-asr: format: {', '.join(names)}", file=sys.stderr)
    return files


def _check_fields(args: argparse.Namespace, files: list[Transcripts]) -> None:
    """Refuse names of fields for files that have none."""
    references, *systems = files
    for option, name, readers in (
        ("--id-field", args.id_field, files),
        ("--ref-field", args.ref_field, [references]),
        ("--hyp-field", args.hyp_field, systems),
    ):
        formats = {file.file_format for file in readers}
        if name is not None and not formats & {"jsonl", "csv"}:
            raise ScoringError(
                f"{option} is for JSON lines and CSV, and there is only "
                f"{', '.join(sorted(formats))}; leave it out"
            )


def _check_formats(
    ref: str, references: Transcripts, hyp: str, hypotheses: Transcripts
) -> None:
    formats = references.file_format, hypotheses.file_format
    # Numbers of lines are ids that no other format shares.
    if formats[0] != formats[1] and "plain" in formats:
        raise ScoringError(
            f"{ref} looks like {formats[0]} and {hyp} like {formats[1]}; "
            "name their formats with --format and --hyp-format"
        )


def _write_files(args: argparse.Namespace, analysis: Analysis) -> None:
    if args.html is not None:
        names = [args.hyp, *filter(None, [args.compare])]
        write_page(args.html, analysis, f"{' and '.join(names)} for {args.ref}")
    if args.trn_out is not None:
        folder = Path(args.trn_out)
        folder.mkdir(parents=True, exist_ok=True)
        sides = (analysis.pairs.references, *analysis.pairs.hypotheses)
        for name, texts in zip(("ref", "hyp", "hyp2"), sides, strict=False):
            write_trn(folder / f"{name}.trn", texts)


def _judge(wer: float | None, errors: int, limit: float | None) -> int:
    if limit is None or (wer is None and not errors):
        return 0
    if wer is not None and wer <= limit:
        return 0
    rate = "n/a with insertions," if wer is None else f"{wer:.2f},"
    print(
        f"mala-asr: the WER is {rate} and --fail-above allows {limit:g}",
        file=sys.stderr,
    )
    return 1


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a regular expression: {error}"
        ) from error


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number, 0 or more"
        )
    return int(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate < float("inf"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a rate in percent, 0 or more"
        )
    return rate
