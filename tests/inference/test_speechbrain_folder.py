"""A model folder in SpeechBrain's own interface."""

import shutil
from pathlib import Path

import pytest
import soundfile
import torch
from speechbrain.inference import EncoderDecoderASR

from mala_asr.inference.model_folder import ModelFolderError, save_model_folder
from mala_asr.inference.transcriber import Transcriber
from tests.decoders import EVERY_DECODER
from tests.tones import ToneModel, texts, tones


def load(folder: Path, **options: object) -> EncoderDecoderASR:
    return EncoderDecoderASR.from_hparams(source=str(folder), **options)


@pytest.mark.parametrize("decoder", EVERY_DECODER)
def test_the_same_text(
    tone_model: ToneModel, tmp_path: Path, decoder: str
) -> None:
    folder = save_model_folder(
        tmp_path / "m",
        *tone_model[::2],
        facts={"decoding": {"decoder": decoder}},
    )
    # Played too slow, so that the words are the model's own.
    paths = []
    for number, text in enumerate(texts(6, seed=79)):
        path = tmp_path / f"{number}.wav"
        soundfile.write(path, tones(text).numpy(), 13000)
        paths.append(str(path))
    ours = [t.text for t in Transcriber(folder, "cpu").transcribe(paths)]
    theirs = load(folder)
    assert [theirs.transcribe_file(path) for path in paths] == ours
    assert len(set(ours)) > 3


def test_a_batch(tone_folder: Path) -> None:
    said = texts(5, seed=80)
    waves = [tones(text) for text in said]
    padded = torch.nn.utils.rnn.pad_sequence(waves, batch_first=True)
    lengths = torch.tensor([len(wave) for wave in waves]) / padded.shape[1]
    words, tokens = load(tone_folder).transcribe_batch(padded, lengths)
    assert words == said
    assert [len(row) > 0 for row in tokens] == [True] * 5


def test_links_in_another_folder(tone_folder: Path, tmp_path: Path) -> None:
    model = load(tone_folder, savedir=str(tmp_path / "links"))
    path = tmp_path / "a.wav"
    soundfile.write(path, tones("AB CD").numpy(), 16000)
    assert model.transcribe_file(str(path)) == "AB CD"
    assert (tmp_path / "links" / "model.safetensors").is_symlink()


def test_other_states_are_refused(tone_folder: Path) -> None:
    model = load(tone_folder)
    wave = tones("AB")[None]
    states = model.encode_batch(wave, torch.ones(1))
    with pytest.raises(ValueError, match="very states"):
        model.mods.decoder(states.clone(), torch.ones(1))


def test_a_changed_folder_is_refused_here_too(
    tone_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tone_folder, tmp_path / "m"))
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-5] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(ModelFolderError, match="damaged or was"):
        load(folder)


def test_our_own_loader_needs_no_such_file(
    tone_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tone_folder, tmp_path / "m"))
    (folder / "hyperparams.yaml").write_text("!apply:sys.exit [3]")
    assert Transcriber(folder, "cpu").sample_rate == 16000
    (folder / "hyperparams.yaml").unlink()
    assert Transcriber(folder, "cpu").sample_rate == 16000
