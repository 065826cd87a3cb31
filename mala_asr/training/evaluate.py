"""Word error rates of a trained model on whole test sets.

Nothing is left out, and nothing of the run but its result files is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from mala_asr.data.batching import read_batches
from mala_asr.data.files import write_json
from mala_asr.data.manifest import Utterance
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.scoring.report import write_wer_files
from mala_asr.scoring.wer import WerReport, score


def evaluate_set(
    recognizer: Recognizer,
    utterances: Sequence[Utterance],
    batch_seconds: float,
    name: str = "test",
    progress: bool = True,
) -> WerReport:
    """Recognize every utterance of a set and score the words.

    Arguments
    ---------
    recognizer : Recognizer
        Model, tokenizer and decoder.
    utterances : sequence of Utterance
        The set.
    batch_seconds : float
        Most seconds of speech in a batch, padding included.
    name : str
        Of the set, for the progress bar.
    progress : bool
        Whether to show the progress bar.

    Returns
    -------
    WerReport
        The report over all of them.
    """
    hypotheses: dict[str, str] = {}
    rate = recognizer.model.sample_rate
    with tqdm(
        total=len(utterances), desc=name, disable=not progress, unit="utt"
    ) as bar:
        for batch, waves in read_batches(utterances, batch_seconds, rate):
            found = recognizer.waves(waves)
            for utterance, hypothesis in zip(batch, found, strict=True):
                hypotheses[utterance.id] = hypothesis.text
            bar.update(len(batch))
    references = {utterance.id: utterance.wrd for utterance in utterances}
    if len(hypotheses) != len(utterances):
        raise RuntimeError("an utterance of a test set was not recognized")
    return score(references, hypotheses)


def write_results(
    folder: Path,
    reports: Mapping[str, WerReport],
    details: Mapping[str, Any],
) -> None:
    """Write the result files of every set and results.json.

    Arguments
    ---------
    folder : Path
        The run folder.
    reports : mapping
        The report of each set, by the set's name.
    details : mapping
        How they were made, such as the decoder and the checkpoints; goes
        into the figures of every set.
    """
    figures = {}
    for name, report in reports.items():
        write_wer_files(folder, name, report)
        figures[name] = {**report.summary(), **details}
    write_json(folder / "results.json", figures)
