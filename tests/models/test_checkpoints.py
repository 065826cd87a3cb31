"""Weights that cannot be read are said to be so."""

import pytest
import torch
from speechbrain.utils.checkpoints import Checkpointer

from mala_asr.models.checkpoints import CheckpointError, load_averaged


@pytest.fixture
def folder(tmp_path):
    saver = Checkpointer(tmp_path, {"model": torch.nn.Linear(2, 2)})
    saver.save_checkpoint(meta={"WER": 5.0})
    return tmp_path


def test_the_best_is_read(folder):
    weights, names = load_averaged(folder)
    assert weights["weight"].shape == (2, 2)
    assert len(names) == 1


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04cut", b"no pickle"])
def test_damaged_weights_are_refused_in_one_line(folder, content):
    (path,) = folder.glob("CKPT*/model.ckpt")
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged.*delete"):
        load_averaged(folder)


def test_no_folder_and_no_checkpoint_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint"):
        load_averaged(tmp_path)
    with pytest.raises(CheckpointError, match="no folder"):
        load_averaged(tmp_path / "none")
