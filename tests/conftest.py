"""Fixtures that several packages' tests share."""

from pathlib import Path

import pytest

from tests.tones import ToneModel, train_tone_model


@pytest.fixture(scope="session")
def tone_model(tmp_path_factory: pytest.TempPathFactory) -> ToneModel:
    """A model that reads tones; trained once, not to be changed."""
    return train_tone_model(tmp_path_factory.mktemp("tone_model"))


@pytest.fixture(scope="session")
def tone_folder(
    tone_model: ToneModel, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Its model folder, not to be changed."""
    from mala_asr.inference.model_folder import save_model_folder

    return save_model_folder(
        tmp_path_factory.mktemp("models") / "tones",
        tone_model.model,
        tone_model.tokenizer_path,
        facts={"decoding": {"decoder": "ctc_greedy"}},
        card="# tones\n",
    )
