"""The model folder: a trained model as data, never as code.

    config.json         what builds the model, and checksums of everything
    model.safetensors   the weights
    tokenizer.model     the SentencePiece tokenizer
    lm.bin, lm.json     an n-gram language model, where there is one
    model.onnx, model.int8.onnx, model.pt2
                        the model as a graph, where asked for
    README.md           the model card, for people; nothing reads it
    hyperparams.yaml    for SpeechBrain; nothing of ours reads it

Loading parses JSON, tables of numbers and a table of word pieces, under
these fixed names: nothing in a folder can be run or can point elsewhere.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import safetensors.torch
import torch

import mala_asr
from mala_asr.data.files import replacing, sha256
from mala_asr.data.tokenizer import check_vocabulary, load_tokenizer
from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.language_model import (
    find_language_model,
    pack_language_model,
)
from mala_asr.decoding.options import DecodingOptions, uses_lm
from mala_asr.errors import MalaError
from mala_asr.inference.pretrained import PRETRAINED, resolve
from mala_asr.models import MalaASR

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

FORMAT = "mala_asr model"
FORMAT_VERSION = 1
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.model"
CARD = "README.md"
LM = "lm.bin"
LM_DESCRIPTION = "lm.json"
ONNX = "model.onnx"
ONNX_INT8 = "model.int8.onnx"
EXPORTED_PROGRAM = "model.pt2"
SPEECHBRAIN = "hyperparams.yaml"
# Arguments of the model that its memory grows with, and what those may be that
# its weights say nothing of.
_SIZES = (
    "d_model",
    "nhead",
    "d_ffn",
    "kernel_size",
    "num_encoder_layers",
    "vocab_size",
    "ctc_upsampling",
)
_OTHER_SIZES = {
    "num_decoder_layers": range(1001),
    "n_mels": range(1, 10_001),
    "n_fft": range(1, (1 << 16) + 1),
    "sample_rate": range(1000, 1_000_001),
    "win_length": range(1, 10_001),
    "hop_length": range(1, 10_001),
}
GRAPHS = (ONNX, ONNX_INT8, EXPORTED_PROGRAM)
NAMES = {CONFIG, WEIGHTS, TOKENIZER, CARD, LM, LM_DESCRIPTION, SPEECHBRAIN}
NAMES |= set(GRAPHS)


# Tables that a model makes for itself, so that a folder need not hold them.
_TABLES = ("transformer.positional_encoding_decoder.pe",)

# Settings of a model that earlier versions had not, and what they meant.
_LATER_SETTINGS = {"top_db": 80.0}


# Writes a graph of a model into a file.
GraphWriter = Callable[[MalaASR, Path], None]

_SPEECHBRAIN_YAML = """\
# For SpeechBrain, where mala_asr is installed:
#   EncoderDecoderASR.from_hparams(source="this folder")
# mala_asr itself does not read this file.
encoder: !new:mala_asr.inference.speechbrain_folder.Encoder
decoder: !new:mala_asr.inference.speechbrain_folder.Decoder
    encoder: !ref <encoder>
tokenizer: !new:mala_asr.inference.speechbrain_folder.Tokenizer
    encoder: !ref <encoder>
pretrainer: !new:mala_asr.inference.speechbrain_folder.ModelFolder
    encoder: !ref <encoder>
modules:
    encoder: !ref <encoder>
    decoder: !ref <decoder>
audio_normalizer: !new:speechbrain.dataio.preprocess.AudioNormalizer
    sample_rate: {sample_rate}
"""


class ModelFolderError(MalaError):
    """A model folder that cannot be used or may not be written."""


@dataclass(frozen=True)
class LoadedModel:
    """A model folder in memory.

    Arguments
    ---------
    model : MalaASR
        The model with its weights, in evaluation mode, on the CPU.
    tokenizer : SentencePieceProcessor
        Its tokenizer.
    config : dict
        The folder's ``config.json``.
    folder : Path
        The folder.
    """

    model: MalaASR
    tokenizer: "SentencePieceProcessor"
    config: dict[str, Any]
    folder: Path

    def decoding(self, changes: Mapping[str, Any]) -> DecodingOptions:
        """Give the options to decode with.

        Arguments
        ---------
        changes : Mapping[str, Any]
            Options by name, in place of those that the model was evaluated
            or tuned with; None changes nothing.

        Returns
        -------
        DecodingOptions
            The options, with the folder's language model where the decoder
            can use one and `changes` names none.

        Raises
        ------
        ModelFolderError
            When the folder's own options are not understood.
        DecodingError
            When the changes cannot be.
        """
        try:
            stored = DecodingOptions.stored(self.config.get("decoding", {}))
        except (AttributeError, TypeError, DecodingError) as error:
            raise ModelFolderError(
                f"{self.folder} asks for a decoding that this mala_asr does "
                "not know; upgrade mala_asr or export the model again"
            ) from error
        options = stored.changed(changes)
        if LM in self.config["sha256"] and options.lm is None:
            if uses_lm(options.decoder):
                return replace(options, lm=str(self.folder / LM))
        return options


def save_model_folder(
    dest: str | os.PathLike[str],
    model: MalaASR,
    tokenizer_path: str | os.PathLike[str],
    facts: Mapping[str, Any] | None = None,
    card: str = "",
    lm: str | os.PathLike[str] | None = None,
    graphs: Mapping[str, GraphWriter] | None = None,
    dtype: str = "float32",
) -> Path:
    """Write a model folder, whole or not at all.

    Arguments
    ---------
    dest : str or os.PathLike
        The folder to write. A model folder that is there is replaced.
    model : MalaASR
        The model.
    tokenizer_path : str or os.PathLike
        The tokenizer that it was trained with.
    facts : Mapping[str, Any], optional
        More entries of ``config.json``, such as ``decoding``.
    card : str
        The text of ``README.md``.
    lm : str or os.PathLike, optional
        A language model of ``mala-asr train-lm``, or an ARPA file.
    graphs : Mapping[str, GraphWriter], optional
        What writes the graphs wanted, by file name, see `GRAPHS`.
    dtype : str
        What the weights are stored in, of `engine.STORED_DTYPES`.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ModelFolderError
        When `dest` holds anything else than a model folder, or a weight is
        beyond the range of `dtype`.
    DecodingError
        When the language model does not fit the tokenizer.
    """
    dest = Path(dest)
    _refuse_foreign(dest)
    dest.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{dest.name}.", dir=dest.parent
    ) as scratch:
        new = Path(scratch) / "new"
        new.mkdir()
        weights = _stored_weights(model, getattr(torch, dtype))
        # Their own writer makes files that only their owner may read.
        (new / WEIGHTS).write_bytes(safetensors.torch.save(weights))
        _write_files(
            new, model, tokenizer_path, facts or {}, card, lm, graphs or {}
        )
        # Also refuses a tokenizer that is not the model's.
        load_model_folder(new)
        _swap(new, dest, Path(scratch) / "old")
    return dest


def load_model_folder(folder: str | os.PathLike[str]) -> LoadedModel:
    """Read a model folder after checking that it is whole.

    Arguments
    ---------
    folder : str or os.PathLike
        A folder that `save_model_folder` wrote, or the name of a model that
        comes with this package.

    Returns
    -------
    LoadedModel
        Model, tokenizer and config.

    Raises
    ------
    ModelFolderError
        When the folder is missing, incomplete, changed since it was written,
        or of a newer version of this package.
    TokenizerError
        When its tokenizer is not the model's.
    """
    folder = resolve(folder)
    config = _read_config(folder)
    _check_digest(folder, TOKENIZER, sha256(folder / TOKENIZER), config)
    tokenizer = load_tokenizer(folder / TOKENIZER)
    weights = _read_weights(folder, config)
    model = build_model(config["model"], weights, folder / CONFIG)
    check_vocabulary(tokenizer, model.config["vocab_size"])
    return LoadedModel(model.eval(), tokenizer, config, folder)


def needed_files(folder: str | os.PathLike[str]) -> list[str]:
    """List the files of a model folder that `load_model_folder` reads.

    Arguments
    ---------
    folder : str or os.PathLike
        A folder that holds a ``config.json`` at least.

    Returns
    -------
    list[str]
        Their names.

    Raises
    ------
    ModelFolderError
        When the config is not that of a model folder.
    """
    listed = _parse_config(Path(folder)).get("sha256", ())
    return [CONFIG, WEIGHTS, TOKENIZER] + [
        name for name in (LM, LM_DESCRIPTION) if name in listed
    ]


def read_graph(loaded: LoadedModel, name: str) -> bytes:
    """Read a graph of a model folder after checking it.

    Arguments
    ---------
    loaded : LoadedModel
        The folder.
    name : str
        One of `GRAPHS`.

    Returns
    -------
    bytes
        The file.

    Raises
    ------
    ModelFolderError
        When the folder has none, or it was changed.
    """
    if name not in loaded.config["sha256"]:
        option = "--onnx --quantize int8" if name == ONNX_INT8 else "--onnx"
        raise ModelFolderError(
            f"{loaded.folder} has no {name}; export the model again with "
            f"{option}"
        )
    if not (loaded.folder / name).is_file():
        raise _incomplete(loaded.folder, name)
    data = (loaded.folder / name).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    _check_digest(loaded.folder, name, digest, loaded.config)
    return data


def set_decoding(
    folder: str | os.PathLike[str], options: DecodingOptions
) -> None:
    """Make options the ones that a model folder is decoded with.

    Arguments
    ---------
    folder : str or os.PathLike
        A model folder.
    options : DecodingOptions
        The options; the language model is the folder's own.

    Raises
    ------
    ModelFolderError
        When the folder cannot be used.
    """
    folder = resolve(folder)
    config = _read_config(folder)
    config["decoding"] = stored_decoding(options)
    with replacing(folder / CONFIG) as path:
        _write_config(path, config)


def stored_decoding(options: DecodingOptions) -> dict[str, Any]:
    """Turn options into what a model folder keeps of them.

    Arguments
    ---------
    options : DecodingOptions
        The options.

    Returns
    -------
    dict[str, Any]
        By name, without the path of the language model.
    """
    return {k: v for k, v in options.given().items() if k != "lm"}


def _swap(new: Path, dest: Path, old: Path) -> None:
    if dest.exists():
        dest.rename(old)
    try:
        new.rename(dest)
    except BaseException:
        if old.exists():
            old.rename(dest)
        raise


def _stored_weights(
    model: MalaASR, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    # What was measured, not learned, stays as exact as it is.
    learned = {name for name, _ in model.named_parameters()}
    state = {}
    for name, value in model.state_dict().items():
        if name in _TABLES:
            continue
        # The format holds no two names for one tensor; hence the copy.
        stored = value.detach().cpu().clone().contiguous()
        if name in learned:
            stored = stored.to(dtype)
            if value.isfinite().all() and not stored.isfinite().all():
                raise ModelFolderError(
                    f"weights of '{name}' are beyond the range of {dtype}; "
                    "store them in float32"
                )
        state[name] = stored
    return state


def _write_files(
    folder: Path,
    model: MalaASR,
    tokenizer_path: str | os.PathLike[str],
    facts: Mapping[str, Any],
    card: str,
    lm: str | os.PathLike[str] | None,
    graphs: Mapping[str, GraphWriter],
) -> None:
    shutil.copyfile(tokenizer_path, folder / TOKENIZER)
    (folder / CARD).write_text(card, encoding="utf-8")
    hashed = [WEIGHTS, TOKENIZER]
    if lm is not None:
        pack_language_model(
            find_language_model(lm, load_tokenizer(folder / TOKENIZER)),
            folder / LM,
        )
        hashed += [LM, LM_DESCRIPTION]
    for name, write in graphs.items():
        write(model, folder / name)
        hashed.append(name)
    (folder / SPEECHBRAIN).write_text(
        _SPEECHBRAIN_YAML.format(sample_rate=model.sample_rate),
        encoding="utf-8",
    )
    config = {
        **facts,
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "mala_asr_version": mala_asr.__version__,
        "model": model.config,
        "sha256": {name: sha256(folder / name) for name in hashed},
    }
    _write_config(folder / CONFIG, config)


def _write_config(path: Path, config: Mapping[str, Any]) -> None:
    summed = {**config, "checksum": _checksum(config)}
    text = json.dumps(summed, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _refuse_foreign(dest: Path) -> None:
    if dest.is_dir() and not dest.is_symlink():
        names = {entry.name for entry in dest.iterdir()}
        if not names:
            return
        foreign = sorted(names - NAMES)
        if CONFIG in names and not foreign:
            _parse_config(dest)
            return
        what = f"holds other files ('{(foreign or sorted(names))[0]}')"
    elif dest.exists() or dest.is_symlink():
        what = "is not a folder"
    else:
        return
    raise ModelFolderError(
        f"{dest} {what} and is left as it is; name a new folder"
    )


def _parse_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelFolderError(
            f"{folder}: {CONFIG} is damaged; export or copy the model again"
        ) from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelFolderError(
            f"{folder} is not a model folder: its {CONFIG} is of another "
            "program; give a folder made by 'mala-asr export'"
        )
    return config


def _read_config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise ModelFolderError(
            f"no model folder at {folder}; give a folder made by "
            f"'mala-asr export', or {PRETRAINED} (nothing is downloaded)"
        )
    for name in (CONFIG, WEIGHTS, TOKENIZER):
        if not (folder / name).is_file():
            raise _incomplete(folder, name)
    config = _parse_config(folder)
    version = config.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ModelFolderError(
            f"{folder} has format version {version} and this is mala_asr "
            f"{mala_asr.__version__}, which reads up to {FORMAT_VERSION}; "
            "upgrade mala_asr"
        )
    if config.pop("checksum", None) != _checksum(config):
        raise _changed(folder, CONFIG)
    for key in ("model", "sha256"):
        if not isinstance(config.get(key), dict):
            raise ModelFolderError(
                f"{folder}: {CONFIG} has no '{key}'; export the model again"
            )
    for name in (LM, LM_DESCRIPTION):
        if name in config["sha256"]:
            if not (folder / name).is_file():
                raise _incomplete(folder, name)
            _check_digest(folder, name, sha256(folder / name), config)
    return config


def _checksum(config: Mapping[str, Any]) -> str:
    text = json.dumps(config, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _check_digest(
    folder: Path, name: str, digest: str, config: Mapping[str, Any]
) -> None:
    if config["sha256"].get(name) != digest:
        raise _changed(folder, name)


def _incomplete(folder: Path, name: str) -> ModelFolderError:
    return ModelFolderError(
        f"{folder} is not a whole model folder: {name} is missing; "
        "export or copy the model again"
    )


def _changed(folder: Path, name: str) -> ModelFolderError:
    return ModelFolderError(
        f"{folder}: {name} is damaged or was changed after it was written; "
        "export or copy the model again"
    )


def _read_weights(
    folder: Path, config: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    data = (folder / WEIGHTS).read_bytes()
    _check_digest(folder, WEIGHTS, hashlib.sha256(data).hexdigest(), config)
    try:
        return safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise ModelFolderError(
            f"{folder}: {WEIGHTS} cannot be read ({error})"
        ) from error


def build_model(
    settings: Any, weights: Mapping[str, torch.Tensor], source: Path
) -> MalaASR:
    """Build a model from settings and weights that were kept apart.

    Arguments
    ---------
    settings : Any
        What should be the ``config`` of a MalaASR.
    weights : Mapping[str, torch.Tensor]
        What should be its state dict.
    source : Path
        The file of the settings, for the message of an error.

    Returns
    -------
    MalaASR
        The model.

    Raises
    ------
    ModelFolderError
        When the settings build no model or the weights do not fit it.
    """
    try:
        settings = {**_LATER_SETTINGS, **settings}
        _check_sizes(settings, weights)
        model = MalaASR(**settings)
    except Exception as error:
        raise ModelFolderError(
            f"{source} does not describe a model: {error}"
        ) from error
    if model.config != settings:
        raise ModelFolderError(
            f"{source} lacks some of the model's settings; export it again"
        )
    own = model.state_dict()
    tables = {name: own[name] for name in _TABLES if name in own}
    weights = {**tables, **weights}
    shapes = {name: value.shape for name, value in weights.items()}
    wanted = {name: value.shape for name, value in own.items()}
    differing = [
        name
        for name in sorted(shapes.keys() | wanted.keys())
        if shapes.get(name) != wanted.get(name)
    ]
    if differing:
        raise ModelFolderError(
            f"the weights do not fit the model of {source}, first "
            f"'{differing[0]}'; take both from one training"
        )
    model.load_state_dict(weights)
    return model


def _check_sizes(
    settings: Mapping[str, Any], weights: Mapping[str, torch.Tensor]
) -> None:
    """Refuse settings that would take far more memory than the weights."""
    given = sum(value.numel() for value in weights.values())
    limits = dict.fromkeys(_SIZES, range(1, given + 1)) | _OTHER_SIZES
    size = {name: settings.get(name, 1) for name in _SIZES}
    for name, limit in limits.items():
        value = settings.get(name, limit[-1])
        # Python counts True as a number.
        if type(value) is not int or value not in limit:
            raise ValueError(f"{name} is {value!r}")
    layers = size["num_encoder_layers"]
    widths = size["d_model"] + size["d_ffn"] + size["kernel_size"]
    outputs = size["vocab_size"] * size["ctc_upsampling"]
    # Not all of the parameters, but the greater part of them.
    least = size["d_model"] * (layers * widths + outputs)
    if least > given:
        raise ValueError(
            f"its sizes take {least} weights or more, and there are {given}"
        )
