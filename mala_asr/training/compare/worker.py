"""One part of a comparison, in a process of its own.

The comparison starts it with a job on standard input, one line of JSON, and
keeps that input open: when it closes, because the comparison was stopped or
killed, the part stops as by Ctrl-C and can be resumed. What it leaves in the
run's folder tells the comparison how it went.

    outcome.json            a training that ended
    memory.json             the most memory of the training's processes
    decoded/NAME/           transcripts by one decoder, and
    decoded/NAME/done.json  how they were made, once they are whole
"""

from __future__ import annotations

import _thread
import hashlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speechbrain.utils.run_opts import RunOptions

from mala_asr.data.audio import audio_info
from mala_asr.data.files import write_json
from mala_asr.data.librispeech import (
    AUDIO_SUFFIXES,
    CorpusError,
    prepare_librispeech,
    split_folder,
)
from mala_asr.data.manifest import Utterance, read_manifest
from mala_asr.data.tokenizer import load_tokenizer
from mala_asr.decoding import DecodingOptions
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.devices import find_device
from mala_asr.errors import MalaError, os_error_text
from mala_asr.models.checkpoints import load_averaged
from mala_asr.scoring.formats import write_trn
from mala_asr.scoring.report import write_wer_files
from mala_asr.training import train
from mala_asr.training.brain import BEST_KEY, NonFiniteError
from mala_asr.training.compare.plan import as_yaml
from mala_asr.training.config import build_config, read_config
from mala_asr.training.data_pipeline import EpochBatches, SpeechDataset
from mala_asr.training.evaluate import evaluate_set
from mala_asr.training.memory import peak_device_memory, peak_memory

OUTCOME = "outcome.json"
MEMORY = "memory.json"
DECODED = "decoded"
DONE = "done.json"
_INTERRUPT_AGAIN = 5.0  # seconds


def main() -> int:
    """Do the job that standard input describes.

    Returns
    -------
    int
        0, or 1 after an expected error, or 130 when interrupted.
    """
    # Standard output is for the comparison's table.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with open(0, "rb", buffering=0, closefd=False) as stream:
        job = json.loads(stream.readline())
    threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    try:
        if job.pop("task") == "train":
            train_run(**job)
        else:
            decode_run(**job)
    except (MalaError, OSError) as error:
        text = os_error_text(error) if isinstance(error, OSError) else error
        print(f"compare: error: {text}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def train_run(
    config: str,
    overrides: Mapping[str, Any],
    device: str | None,
    last_epoch: int | None,
) -> None:
    """Train, or go on with a training, and note how it ended.

    Arguments
    ---------
    config : str
        The base config.
    overrides : mapping
        What the run changes of it; ``output_folder`` is the run's folder.
    device : str, optional
        As for training.
    last_epoch : int, optional
        Where a scan stops; its checkpoints are of no use afterwards.
    """
    folder = Path(overrides["output_folder"])
    options = RunOptions.from_dictionary({"device": device} if device else {})
    outcome = "finished"
    with _noting_memory(folder):
        try:
            train.run(config, as_yaml(overrides), options, last_epoch)
        except NonFiniteError as error:
            print(f"compare: {error}", file=sys.stderr)
            outcome = "diverged"
    hparams = build_config(read_config(Path(config), as_yaml(overrides)))
    facts = {
        "outcome": outcome,
        "batch_order": batch_order(hparams, folder),
        "peak_rate": hparams["schedule"].peak,
    }
    write_json(folder / OUTCOME, facts)
    if last_epoch is not None:
        shutil.rmtree(folder / "save", ignore_errors=True)


def batch_order(hparams: dict[str, Any], folder: Path) -> str:
    """Sum up which utterances each batch of the first epoch holds.

    Arguments
    ---------
    hparams : dict
        The config of a run.
    folder : Path
        Its folder.

    Returns
    -------
    str
        Equal for trainings that see the same batches in the same order.
    """
    tokenizer = load_tokenizer(folder / "tokenizer.model")
    model = train.make_model(hparams, len(tokenizer))
    sets = train.read_sets(hparams, folder)
    utterances = train.training_set(model, hparams, sets, tokenizer)
    batches = EpochBatches(
        SpeechDataset(utterances, tokenizer, _no_speech),
        hparams["batch_seconds"],
        hparams["num_buckets"],
        hparams["seed"],
    )
    batches.set_epoch(1)
    ids = [[utterances[index].id for index in batch] for batch in batches]
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:16]


def decode_run(
    config: str,
    overrides: Mapping[str, Any],
    device: str | None,
    decoders: Mapping[str, Mapping[str, Any]],
    test_sets: Sequence[str],
    blind_sets: Sequence[str],
) -> None:
    """Decode all sets with the average of a run's best checkpoints.

    Arguments
    ---------
    config : str
        The base config.
    overrides : mapping
        What the run changes of it.
    device : str, optional
        Where to decode.
    decoders : mapping
        What `done.json` will say of each decoder, its options among it.
    test_sets : sequence of str
        Splits with transcripts.
    blind_sets : sequence of str
        Folders without.
    """
    hparams = build_config(read_config(Path(config), as_yaml(overrides)))
    folder = Path(hparams["output_folder"])
    tokenizer = load_tokenizer(folder / "tokenizer.model")
    model = train.make_model(hparams, len(tokenizer))
    weights, names = load_averaged(
        folder / "save", hparams["average_checkpoints"], BEST_KEY
    )
    model.load_state_dict(weights)
    model.eval().to(find_device(device or "auto"))
    data = Path(hparams["data_folder"])
    manifests = prepare_librispeech(data, folder / "manifests", test_sets)
    sets = {name: read_manifest(path) for name, path in manifests.items()}
    blind = {name: blind_utterances(data, name) for name in blind_sets}
    for name, facts in decoders.items():
        recognizer = Recognizer(
            model, tokenizer, DecodingOptions.of(facts["options"])
        )
        target = folder / DECODED / name
        target.mkdir(parents=True, exist_ok=True)
        for split, utterances in {**sets, **blind}.items():
            report = evaluate_set(
                recognizer, utterances, hparams["eval_batch_seconds"], split
            )
            if split in sets:
                write_wer_files(target, split, report)
            else:
                write_trn(
                    target / f"hyp_{split}.trn",
                    {u.id: " ".join(u.hypothesis) for u in report.utterances},
                )
        write_json(target / DONE, {**facts, "checkpoints": names})


def blind_utterances(data_folder: Path, name: str) -> list[Utterance]:
    """List recordings that have no transcripts.

    Arguments
    ---------
    data_folder : Path
        The folder that holds the splits.
    name : str
        Name of a folder there, with audio at any depth.

    Returns
    -------
    list of Utterance
        Their words empty, by id: the file's name without its ending.

    Raises
    ------
    CorpusError
        If there are none, or two have one name.
    """
    root = split_folder(data_folder, name)
    paths = sorted(
        (p for p in root.rglob("*") if p.suffix.lower() in AUDIO_SUFFIXES),
        key=lambda path: path.stem,
    )
    if not paths:
        raise CorpusError(
            f"{root} holds no recording; put {' or '.join(AUDIO_SUFFIXES)} "
            "files there"
        )
    for one, two in zip(paths, paths[1:], strict=False):
        if one.stem == two.stem:
            raise CorpusError(f"{one} and {two} have one name; rename one")
    return [
        Utterance(path.stem, audio_info(path).duration, str(path), "", "")
        for path in paths
    ]


@contextmanager
def _noting_memory(folder: Path) -> Iterator[None]:
    """Keep the most that any of the run's processes has needed."""
    try:
        yield
    finally:
        path = folder / MEMORY
        peaks = json.loads(path.read_text()) if path.exists() else {}
        for name, peak in (
            ("resident", peak_memory()),
            ("device", peak_device_memory()),
        ):
            peaks[name] = max(peak or 0, peaks.get(name, 0))
        write_json(path, peaks)


def _no_speech(utterance: Utterance, speed: float) -> Any:
    raise AssertionError("only the order of the utterances is asked for")


def _stop_at_end_of_input() -> None:
    while os.read(0, 1):
        pass
    while True:
        _thread.interrupt_main()
        # Python drops an interruption that meets a finalizer.
        time.sleep(_INTERRUPT_AGAIN)


if __name__ == "__main__":
    sys.exit(main())
