"""The learning curve: one JSON line for each epoch, and a picture of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speechbrain.utils.distributed import main_process_only

from mala_asr.data.files import replacing


class LearningCurve:
    """Writes learning_curve.jsonl and draws learning_curve.png.

    An epoch that is logged again, after a run was resumed from before its
    end, replaces its earlier line.

    Arguments
    ---------
    folder : str or Path
        Where to write.

    Example
    -------
    >>> folder = getfixture("tmp_path")
    >>> curve = LearningCurve(folder)
    >>> curve.log_stats(
    ...     {"epoch": 1, "lr": 0.1}, {"loss": 9.0}, {"loss": 8.0, "WER": 90.0}
    ... )
    >>> sorted(path.name for path in folder.iterdir())
    ['learning_curve.jsonl', 'learning_curve.png']
    """

    def __init__(self, folder: str | Path) -> None:
        self.lines = Path(folder) / "learning_curve.jsonl"
        self.picture = Path(folder) / "learning_curve.png"

    @main_process_only
    def log_stats(
        self,
        stats_meta: Mapping[str, Any],
        train_stats: Mapping[str, float] | None = None,
        valid_stats: Mapping[str, float] | None = None,
    ) -> None:
        """Add an epoch.

        Arguments
        ---------
        stats_meta : mapping
            The epoch's number and its learning rate.
        train_stats : mapping, optional
            Training loss and speed.
        valid_stats : mapping, optional
            Validation loss and WER.
        """
        line = {
            **stats_meta,
            **{f"train_{k}": v for k, v in (train_stats or {}).items()},
            **{f"valid_{k}": v for k, v in (valid_stats or {}).items()},
        }
        epochs = {row["epoch"]: row for row in self.read()}
        epochs[line["epoch"]] = line
        rows = [epochs[epoch] for epoch in sorted(epochs)]
        with replacing(self.lines) as path:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with replacing(self.picture) as path:
            _draw(rows, path)

    def read(self) -> list[dict[str, float]]:
        """Give the epochs that were logged, in order.

        Returns
        -------
        list of dict
            One for each epoch.
        """
        if not self.lines.exists():
            return []
        return [json.loads(row) for row in self.lines.read_text().splitlines()]


def _draw(rows: list[dict[str, float]], path: Path) -> None:
    # Figure alone needs no display and leaves no global state behind.
    from matplotlib.figure import Figure

    epochs = [row["epoch"] for row in rows]
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    losses, errors = figure.subplots(1, 2)
    for key, label in (("train_loss", "train"), ("valid_loss", "valid")):
        losses.plot(epochs, [row.get(key) for row in rows], label=label)
    losses.set(xlabel="epoch", ylabel="loss per utterance", yscale="log")
    losses.legend()
    errors.plot(epochs, [row.get("valid_WER") for row in rows], color="C1")
    errors.set(xlabel="epoch", ylabel="valid WER (%), CTC greedy", ylim=0)
    for axes in (losses, errors):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
