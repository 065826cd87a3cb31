"""From the folder of a training run to a model folder.

The run is only read, so that it can be evaluated again or resumed as if
nothing had been exported.
"""

import json
import os
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.options import NO_LM, DecodingOptions, uses_lm
from mala_asr.errors import MalaError
from mala_asr.inference.graph import WRITERS
from mala_asr.inference.model_card import model_card
from mala_asr.inference.model_folder import (
    CARD,
    CONFIG,
    LM,
    TOKENIZER,
    GraphWriter,
    build_model,
    load_model_folder,
    save_model_folder,
    stored_decoding,
)
from mala_asr.inference.pretrained import resolve
from mala_asr.models.checkpoints import load_averaged

RUN_FORMAT_VERSION = 1
_KINDS: dict[str, type] = {
    "model": dict,
    "decoding": dict,
    "training": dict,
    "average_checkpoints": int,
}


class ExportError(MalaError):
    """A training run that cannot be exported."""


def export_run(
    run_folder: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    average: int | None = None,
    lm: str | os.PathLike[str] | None = None,
    graphs: Collection[str] = (),
    dtype: str = "float32",
    notes: str = "",
) -> Path:
    """Write the model of a training run as a model folder.

    Arguments
    ---------
    run_folder : str or os.PathLike
        The output folder of a training.
    dest : str or os.PathLike
        The model folder to write.
    average : int, optional
        How many of the best checkpoints to average; as many as the run's
        evaluation did if None.
    lm : str or os.PathLike, optional
        A language model to put into the folder; that of the run's evaluation
        if None. The model is then decoded with it unless told otherwise.
    graphs : Collection[str]
        Names of the graphs to put in, of `model_folder.GRAPHS`.
    dtype : str
        What the weights are stored in, of `engine.STORED_DTYPES`.
    notes : str
        Markdown that the card tells besides.

    Returns
    -------
    Path
        The model folder. Its card gives the word error rates of the run's
        evaluation if that used the same checkpoints.

    Raises
    ------
    ExportError
        When the folder is not that of a run.
    CheckpointError
        When the run has no checkpoint.
    DecodingError
        When the language model does not fit the run's tokenizer.
    ModelFolderError
        When `dest` holds something else, or settings, weights and tokenizer
        of the run do not belong together.
    GraphError
        When a library is missing, or the model has no such graph.
    """
    run_folder, dest = Path(run_folder), Path(dest)
    run = _read_run(run_folder)
    count = run.get("average_checkpoints", 1) if average is None else average
    weights, checkpoints = load_averaged(run_folder / "save", count)
    model = build_model(run.get("model"), weights, run_folder / "model.json")
    results = {
        name: totals
        for name, totals in _read_results(run_folder).items()
        if set(totals.get("checkpoints", ())) == set(checkpoints)
    }
    training = {
        **commit_of(Path(__file__).resolve().parents[2]),
        **run.get("training", {}),
        "checkpoints averaged": len(checkpoints),
    }
    decoding, lm = _decoding(run_folder, run, results, lm)
    return save_model_folder(
        dest,
        model,
        run_folder / TOKENIZER,
        facts={
            "decoding": stored_decoding(decoding),
            "training": training,
            "results": results,
        },
        card=model_card(
            dest.resolve().name, model.config, training, results, notes
        ),
        lm=lm,
        graphs=_writers(graphs),
        dtype=dtype,
    )


def export_model_folder(
    folder: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    lm: str | os.PathLike[str] | None = None,
    graphs: Collection[str] = (),
    dtype: str = "float32",
) -> Path:
    """Write a model folder once more, with graphs or a language model.

    Arguments
    ---------
    folder : str or os.PathLike
        A model folder.
    dest : str or os.PathLike
        The model folder to write; may be the same.
    lm : str or os.PathLike, optional
        A language model in place of the folder's.
    graphs : Collection[str]
        Names of the graphs to put in, of `model_folder.GRAPHS`.
    dtype : str
        What the weights are stored in, of `engine.STORED_DTYPES`.

    Returns
    -------
    Path
        The new model folder.

    Raises
    ------
    ModelFolderError
        When the folder cannot be used, or `dest` holds something else.
    DecodingError
        When the language model does not fit the tokenizer.
    GraphError
        When a library is missing, or the model has no such graph.
    """
    loaded = load_model_folder(folder)
    kept = ("decoding", "training", "results")
    facts = {k: v for k, v in loaded.config.items() if k in kept}
    if lm is not None:
        facts["decoding"] = stored_decoding(_with_lm(loaded.decoding({}), lm))
    elif LM in loaded.config["sha256"]:
        lm = loaded.folder / LM
    card = loaded.folder / CARD
    return save_model_folder(
        dest,
        loaded.model,
        loaded.folder / TOKENIZER,
        facts=facts,
        card=card.read_text(encoding="utf-8") if card.is_file() else "",
        lm=lm,
        graphs=_writers(graphs),
        dtype=dtype,
    )


def is_model_folder(folder: str | os.PathLike[str]) -> bool:
    """Tell a model folder from the output folder of a training.

    Arguments
    ---------
    folder : str or os.PathLike
        Either of them, or neither.

    Returns
    -------
    bool
        Whether it should be read as a model folder.
    """
    return (resolve(folder) / CONFIG).is_file()


def _writers(graphs: Collection[str]) -> Mapping[str, GraphWriter]:
    return {k: write for k, write in WRITERS.items() if k in graphs}


def _read_run(run_folder: Path) -> dict[str, Any]:
    if not run_folder.is_dir():
        raise ExportError(
            f"no folder {run_folder}; give the output folder of a training"
        )
    for name in ("model.json", TOKENIZER):
        if not (run_folder / name).is_file():
            raise ExportError(
                f"{run_folder} is not the output folder of a training: "
                f"{name} is missing"
            )
    run = _read_json(run_folder / "model.json")
    version = run.get("format_version")
    if not isinstance(version, int) or version > RUN_FORMAT_VERSION:
        raise ExportError(
            f"{run_folder}/model.json has format version {version}, this "
            f"mala_asr reads up to {RUN_FORMAT_VERSION}; upgrade mala_asr"
        )
    for key, kind in _KINDS.items():
        if not isinstance(run.get(key, kind()), kind):
            raise _damaged(run_folder / "model.json", f"its {key}")
    return run


def _decoding(
    run_folder: Path,
    run: dict[str, Any],
    results: Mapping[str, Mapping[str, Any]],
    lm: str | os.PathLike[str] | None,
) -> tuple[DecodingOptions, str | os.PathLike[str] | None]:
    """How the run was evaluated, and the language model to put in."""
    options = run.get("decoding", {})
    names = {field.name for field in fields(DecodingOptions)}
    for totals in results.values():
        # --test_only may have chosen another decoder than the training.
        if "decoder" in totals:
            options = {k: v for k, v in totals.items() if k in names}
    try:
        evaluated = DecodingOptions.stored(options)
    except (TypeError, DecodingError) as error:
        raise _damaged(run_folder / "model.json", "its decoding") from error
    if lm is None:
        return evaluated, None if evaluated.lm == NO_LM else evaluated.lm
    return _with_lm(evaluated, lm), lm


def _with_lm(
    options: DecodingOptions, lm: str | os.PathLike[str]
) -> DecodingOptions:
    # One that its decoder could not use would lie there for nothing.
    decoder = options.decoder if uses_lm(options.decoder) else "ctc_beam"
    return options.changed({"decoder": decoder, "lm": os.fspath(lm)})


def _read_results(run_folder: Path) -> dict[str, dict[str, Any]]:
    path = run_folder / "results.json"
    results = _read_json(path) if path.is_file() else {}
    for name, totals in results.items():
        if not isinstance(totals, dict):
            raise _damaged(path, f"its {name}")
    return results


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(content, dict):
        raise _damaged(path, "not a JSON object")
    return content


def _damaged(path: Path, what: str) -> ExportError:
    return ExportError(f"{path} is damaged ({what})")


def commit_of(root: Path) -> dict[str, str]:
    """Find the commit of a checkout.

    Arguments
    ---------
    root : Path
        What may be the top of a checkout. It is not looked for further up:
        an installed copy may lie inside the repository of somebody else.

    Returns
    -------
    dict[str, str]
        ``commit``, marked if files were changed since; empty if there is
        none.
    """
    if not (root / ".git").exists():
        return {}
    git = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        described = subprocess.run(
            git, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": described.stdout.strip()}
