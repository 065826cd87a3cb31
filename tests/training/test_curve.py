"""The learning curve's lines and picture."""

from pathlib import Path

from mala_asr.training.curve import LearningCurve


def test_an_epoch_logged_again_replaces_its_line(tmp_path: Path) -> None:
    curve = LearningCurve(tmp_path)
    for epoch, wer in ((1, 90.0), (2, 80.0), (2, 70.0)):
        curve.log_stats({"epoch": epoch}, {"loss": 5.0}, {"WER": wer})
    assert [(r["epoch"], r["valid_WER"]) for r in curve.read()] == [
        (1, 90.0),
        (2, 70.0),
    ]
    # Another process of the same run goes on from them.
    LearningCurve(tmp_path).log_stats({"epoch": 3}, {"loss": 4.0}, {"WER": 60})
    assert len(curve.read()) == 3
    assert curve.picture.read_bytes().startswith(b"\x89PNG")
