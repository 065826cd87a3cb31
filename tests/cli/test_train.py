"""`mala-asr train` hands everything to the training script."""

import pytest

from mala_asr.cli.main import main


@pytest.mark.parametrize("status", [0, 1])
def test_passes_config_and_options_on(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    from mala_asr.training import train

    received = []

    def script(argv: list[str]) -> int:
        received.extend(argv)
        return status

    monkeypatch.setattr(train, "main", script)
    argv = ["a.yaml", "--data_folder", "x", "--test_only", "--lr=1e-3"]
    assert main(["train", *argv]) == status
    assert received == argv
