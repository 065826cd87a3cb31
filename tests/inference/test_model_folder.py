"""The model folder: round trip, refusals, and nothing that can run."""

import json
import pickle
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
import safetensors.torch
import torch

from mala_asr.data.files import sha256
from mala_asr.data.tokenizer import TokenizerError, train_tokenizer
from mala_asr.inference import model_folder
from mala_asr.inference.model_folder import (
    ModelFolderError,
    load_model_folder,
    save_model_folder,
)
from mala_asr.models import MalaASR
from tests.tones import ToneModel, tones


@pytest.fixture
def folder(tone_folder: Path, tmp_path: Path) -> Path:
    """A copy of a model folder to spoil."""
    return Path(shutil.copytree(tone_folder, tmp_path / "model"))


def edit_config(folder: Path, change: Callable[[dict], object]) -> None:
    """Change a config as somebody would who knows of the checksums."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["checksum"]
    for name in config["sha256"]:
        config["sha256"][name] = sha256(folder / name)
    change(config)
    config["checksum"] = model_folder._checksum(config)
    path.write_text(json.dumps(config))


def test_round_trip(tone_model: ToneModel, tone_folder: Path) -> None:
    loaded = load_model_folder(tone_folder)
    assert loaded.model.config == tone_model.model.config
    assert loaded.config["decoding"] == {"decoder": "ctc_greedy"}
    assert not loaded.model.training
    wave = tones("ABCD")
    feats, n_frames = loaded.model.features(
        wave[None], torch.tensor([len(wave)])
    )
    with torch.no_grad():
        ours = loaded.model(feats, n_frames).ctc_log_probs
        theirs = tone_model.model(feats, n_frames).ctc_log_probs
    assert torch.equal(ours, theirs)
    assert loaded.tokenizer.encode("AB C") == tone_model.tokenizer.encode(
        "AB C"
    )


def test_half_the_bytes(tone_model: ToneModel, tmp_path: Path) -> None:
    model = deepcopy(tone_model.model)
    model.feature_mean[0] = 1 + 2**-20  # measured, so that it stays exact
    path = tone_model.tokenizer_path
    whole = save_model_folder(tmp_path / "whole", model, path)
    half = save_model_folder(tmp_path / "half", model, path, dtype="float16")
    sizes = [(f / "model.safetensors").stat().st_size for f in (whole, half)]
    assert sizes[1] < 0.55 * sizes[0]
    loaded = load_model_folder(half).model
    assert torch.equal(loaded.feature_mean, model.feature_mean)
    for a, b in zip(loaded.parameters(), model.parameters(), strict=True):
        assert a.dtype == torch.float32
        assert torch.equal(a, b.half().float())


def test_half_precision_that_would_not_do(tmp_path: Path) -> None:
    path = train_tokenizer(["A B C D"], tmp_path / "tokenizer", kind="char")
    model = MalaASR(8, d_model=16, num_encoder_layers=1, d_ffn=16)
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] = 1e5
    with pytest.raises(ModelFolderError, match="store them in float32"):
        save_model_folder(tmp_path / "half", model, path, dtype="float16")
    assert not (tmp_path / "half").exists()


def test_anybody_may_read_it(tone_folder: Path) -> None:
    modes = {path.stat().st_mode for path in tone_folder.iterdir()}
    assert len(modes) == 1


def test_tables_of_earlier_versions(
    tone_model: ToneModel, folder: Path
) -> None:
    path = folder / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    table = "transformer.positional_encoding_decoder.pe"
    assert table not in weights
    weights[table] = tone_model.model.state_dict()[table]
    safetensors.torch.save_file(weights, path)
    edit_config(folder, lambda config: None)
    loaded = load_model_folder(folder)
    assert torch.equal(loaded.model.state_dict()[table], weights[table])


def test_holds_data_of_known_names_only(tone_folder: Path) -> None:
    assert {path.name for path in tone_folder.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.model",
        "README.md",
        "hyperparams.yaml",
    }


def test_a_model_folder_is_replaced(
    tone_model: ToneModel, folder: Path
) -> None:
    facts = {"training": {"epochs": 7}}
    save_model_folder(folder, *tone_model[::2], facts=facts)
    assert load_model_folder(folder).config["training"] == {"epochs": 7}
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["notes.txt", "config.json"])
def test_something_else_is_not_overwritten(
    tone_model: ToneModel, tmp_path: Path, name: str
) -> None:
    dest = tmp_path / "mine"
    dest.mkdir()
    (dest / name).write_text('{"mine": true}')
    with pytest.raises(ModelFolderError, match="mine"):
        save_model_folder(dest, *tone_model[::2])
    assert (dest / name).read_text() == '{"mine": true}'
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_model_folder_with_other_files_is_not_overwritten(
    tone_model: ToneModel, folder: Path
) -> None:
    (folder / "results.txt").write_text("precious")
    with pytest.raises(ModelFolderError, match="results.txt"):
        save_model_folder(folder, *tone_model[::2])
    assert (folder / "results.txt").read_text() == "precious"


def test_a_failed_save_leaves_the_old_model(
    tone_model: ToneModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = {path: sha256(path) for path in folder.iterdir()}
    monkeypatch.setattr(safetensors.torch, "save", full_disk)
    with pytest.raises(OSError, match="No space"):
        save_model_folder(folder, *tone_model[::2])
    assert {path: sha256(path) for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_tokenizer_of_another_model_is_not_saved(
    tone_model: ToneModel, tmp_path: Path
) -> None:
    other = train_tokenizer(["WXYZ AND MORE"], tmp_path / "t", kind="char")
    with pytest.raises(TokenizerError, match="pieces"):
        save_model_folder(tmp_path / "model", tone_model.model, other)
    assert not (tmp_path / "model").exists()


def test_a_missing_folder_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="nowhere.*nothing is down"):
        load_model_folder(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.model"]
)
def test_incomplete(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelFolderError, match=f"{name} is missing"):
        load_model_folder(folder)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.model"]
)
def test_truncated(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelFolderError, match=f"{name} is damaged"):
        load_model_folder(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.model"])
def test_one_bit_changed(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[-5] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(ModelFolderError, match=f"{name} is damaged or was"):
        load_model_folder(folder)


def test_an_edited_setting_is_noticed(folder: Path) -> None:
    path = folder / "config.json"
    text = path.read_text()
    assert '"nhead": 4' in text
    path.write_text(text.replace('"nhead": 4', '"nhead": 2'))
    with pytest.raises(ModelFolderError, match="config.json is damaged or was"):
        load_model_folder(folder)


def test_settings_that_came_later_get_what_they_meant(folder: Path) -> None:
    edit_config(folder, lambda config: config["model"].pop("top_db"))
    assert load_model_folder(folder).model.config["top_db"] == 80.0


def test_a_newer_format_is_refused(folder: Path) -> None:
    edit_config(folder, lambda config: config.update(format_version=2))
    with pytest.raises(ModelFolderError, match="version 2.*upgrade"):
        load_model_folder(folder)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda c: c.update(format="other"), "not a model folder"),
        (lambda c: c.update(format_version="1"), "format version 1"),
        (lambda c: c.update(model=["mala"]), "no 'model'"),
        (lambda c: c.pop("sha256"), "no 'sha256'"),
        (lambda c: c["model"].update(attention="os.system"), "os.system"),
        (lambda c: c["model"].update(surprise=1), "surprise"),
        (lambda c: c["model"].update(d_model="wide"), "describe a model"),
        (lambda c: c["model"].pop("nhead"), "lacks some"),
        (lambda c: c["model"].update(d_ffn=64), "weights do not fit"),
        # What would fill the memory is refused before it is built.
        (lambda c: c["model"].update(d_ffn=10**9), "d_ffn is 1000000000"),
        (lambda c: c["model"].update(vocab_size=10**4), "weights or more"),
        (lambda c: c["model"].update(num_encoder_layers=9999), "or more"),
        (lambda c: c["model"].update(num_decoder_layers=9999), "layers is 9"),
        (lambda c: c["model"].update(n_fft=1 << 30), "n_fft is 1073741824"),
        (lambda c: c["model"].update(sample_rate=1), "sample_rate is 1"),
        (lambda c: c["model"].update(nhead=True), "nhead is True"),
    ],
)
def test_a_forged_config_is_refused(
    folder: Path, change: Callable[[dict], object], said: str
) -> None:
    edit_config(folder, change)
    with pytest.raises(ModelFolderError, match=said) as caught:
        load_model_folder(folder)
    assert "\n" not in str(caught.value)


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.write_text, (self.path, "boom")


def test_nothing_in_a_folder_is_run(folder: Path, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    bomb = pickle.dumps(Bomb(sign))
    pickle.loads(bomb)
    assert sign.exists(), "the bomb is a dud"
    sign.unlink()

    for name in ("model.ckpt", "pytorch_model.bin", "tokenizer.pkl"):
        (folder / name).write_bytes(bomb)
    (folder / "hyperparams.yaml").write_text(
        f"x: !apply:pathlib.Path.touch [!new:pathlib.Path ['{sign}']]\n"
    )
    for name in ("custom.py", "__init__.py", "conftest.py"):
        (folder / name).write_text(f"open({str(sign)!r}, 'w')\n")
    load_model_folder(folder)
    assert not sign.exists()

    for name in ("model.safetensors", "tokenizer.model"):
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(bomb)
        edit_config(folder, lambda config: None)
        with pytest.raises((ModelFolderError, TokenizerError)):
            load_model_folder(folder)
        (folder / name).write_bytes(kept)
        assert not sign.exists()


def test_names_in_a_config_lead_nowhere(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.safetensors"
    shutil.move(folder / "model.safetensors", outside)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["checksum"]
    config["sha256"]["../outside.safetensors"] = sha256(outside)
    config["weights"] = "../outside.safetensors"
    config["checksum"] = model_folder._checksum(config)
    path.write_text(json.dumps(config))
    with pytest.raises(ModelFolderError, match="model.safetensors is missing"):
        load_model_folder(folder)


def test_a_ctc_only_model_travels(
    tmp_path: Path, tone_model: ToneModel
) -> None:
    torch.manual_seed(1)
    model = MalaASR(
        len(tone_model.tokenizer),
        frontend="separable8",
        attention="softmax_rope",
        d_model=64,
        num_encoder_layers=1,
        d_ffn=64,
        ctc_weight=1.0,
    )
    save_model_folder(tmp_path / "m", model, tone_model.tokenizer_path)
    loaded = load_model_folder(tmp_path / "m").model.state_dict()
    assert loaded.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(loaded[name], value), name
