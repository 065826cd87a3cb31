"""`mala-asr train` hands everything to the training script."""

import pytest

from mala_asr.cli.main import main


def test_help_lists_the_config_s_keys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "demo", "--help"]) == 0
    out, err = capsys.readouterr()
    assert "--KEY VALUE" in out and err == ""
    assert "  --number_of_epochs 26\n" in out
    assert "  --data_folder VALUE (must be given)\n" in out
    assert "--test_only" in out  # of SpeechBrain
    assert main(["train", "dmeo", "--help"]) == 1
    assert "no config named 'dmeo'" in capsys.readouterr().err


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
