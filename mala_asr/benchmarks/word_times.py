"""How near the times of words are to when they were said.

eSpeak NG says at which sample it begins each word of the synthetic corpus.
The words of its test set are aligned by CTC and their starts compared.

  mala-asr demo
  python -m mala_asr.benchmarks.word_times --model demo_output/model \\
      --corpus demo_output/corpus/LibriSpeech
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from mala_asr.benchmarks.command import run_benchmark
from mala_asr.data.audio import read_audio
from mala_asr.data.synthetic import (
    TEST,
    PlannedUtterance,
    plan_corpus,
    word_starts,
)
from mala_asr.decoding.alignment import with_times
from mala_asr.decoding.hypothesis import Hypothesis, Span
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.inference.model_folder import LoadedModel, load_model_folder

# Of training speech, which the demo's corpus has; the test set is the same
# whatever it is.
_MINUTES = 45.0


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="model folder")
    parser.add_argument(
        "--corpus", required=True, type=Path, help="the synthetic corpus"
    )


def _run(args: argparse.Namespace) -> None:
    errors = start_errors(load_model_folder(args.model), args.corpus)
    absolute = [abs(error) for error in errors]
    print(
        f"starts of {len(errors)} words: mean absolute error "
        f"{1000 * statistics.mean(absolute):.0f} ms, mean "
        f"{1000 * statistics.mean(errors):+.0f} ms, worst "
        f"{1000 * max(absolute):.0f} ms"
    )


def start_errors(loaded: LoadedModel, corpus: Path) -> list[float]:
    """Compare the starts of all words of the test set.

    Arguments
    ---------
    loaded : LoadedModel
        The model.
    corpus : Path
        The corpus of ``mala-asr synthesize`` or the demo.

    Returns
    -------
    list of float
        Found less true start, in seconds, of each word whose start eSpeak
        tells.

    Raises
    ------
    MalaError
        If the corpus or eSpeak NG is missing.
    """
    recognizer = Recognizer(loaded.model, loaded.tokenizer)
    return [
        found.start - start
        for said in plan_corpus(_MINUTES)
        if said.speaker.split == TEST
        for found, start in _words(recognizer, said, corpus)
    ]


def _words(
    recognizer: Recognizer, said: PlannedUtterance, corpus: Path
) -> Iterator[tuple[Span, float]]:
    model, tokenizer = recognizer.model, recognizer.tokenizer
    encoded = recognizer.encode(
        [read_audio(corpus / said.path, sample_rate=model.sample_rate)]
    )
    aligned = with_times(
        Hypothesis(said.words, tokenizer.encode(said.words), score=0.0),
        model.ctc_log_probs(encoded.states)[0].detach(),
        tokenizer,
        model.frame_shift,
        encoded.seconds[0],
    )
    assert aligned.words is not None
    for word, start in zip(aligned.words, word_starts(said), strict=True):
        if start is not None:
            yield word, start


main = partial(run_benchmark, "word_times", __doc__, _add_arguments, _run)

if __name__ == "__main__":
    sys.exit(main())
