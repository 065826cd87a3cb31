"""Recognizers that are not plain torch in float32: see `Engine`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.recognizer import Encoded, Recognizer
from mala_asr.devices import DeviceError, find_device
from mala_asr.errors import MalaError
from mala_asr.inference.engine import Engine
from mala_asr.inference.model_folder import (
    ONNX,
    ONNX_INT8,
    LoadedModel,
    read_graph,
)
from mala_asr.inference.onnx_model import OnnxModel
from mala_asr.models.replace import use_plain_linear

# Of an encoder layer: where most of its time goes, and what must not be
# rounded is not. The attention's own projections stay exact, since MALA reads
# the size of queries and keys.
_FEED_FORWARD = ("ffn_module1", "ffn_module2")
_QUANTIZED = (*_FEED_FORWARD, "convolution_module")


class CompileError(MalaError):
    """A model that torch cannot compile here."""


class OnnxRecognizer(Recognizer):
    """A recognizer whose encoder runs in ONNX Runtime.

    Arguments
    ---------
    onnx : OnnxModel
        The graph of the model.
    *args, **kwargs
        As for `Recognizer`.
    """

    in_blocks = False

    def __init__(self, onnx: OnnxModel, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._onnx = onnx

    def encode(self, waves: Sequence[torch.Tensor]) -> Encoded:
        """Encode recordings as one batch, see `Recognizer.encode`."""
        return self._run(waves)

    def encode_long(self, wave: torch.Tensor) -> Encoded:
        """Encode one recording, at once as the graph does."""
        return self._run([wave], release=True)

    def _run(
        self, waves: Sequence[torch.Tensor], release: bool = False
    ) -> Encoded:
        if any(len(wave) == 0 for wave in waves):
            raise DecodingError("a recording without samples; leave it out")
        samples = torch.tensor([len(wave) for wave in waves])
        padded = pad_sequence(list(waves), batch_first=True)
        _, lengths, states = self._onnx.run(padded, samples, release)
        return Encoded(
            states,
            lengths // self.model.ctc_upsampling,
            [len(wave) / self.model.sample_rate for wave in waves],
        )


class HalfPrecisionRecognizer(Recognizer):
    """A recognizer whose encoder computes with fewer bits.

    Arguments
    ---------
    dtype : torch.dtype
        Of matrix products and convolutions.
    *args, **kwargs
        As for `Recognizer`.
    """

    def __init__(self, dtype: torch.dtype, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._dtype = dtype

    def encode(self, waves: Sequence[torch.Tensor]) -> Encoded:
        """Encode recordings as one batch, see `Recognizer.encode`."""
        with self._autocast():
            encoded = super().encode(waves)
        return encoded._replace(states=encoded.states.float())

    def encode_long(self, wave: torch.Tensor) -> Encoded:
        """Encode one recording in blocks, see `Recognizer.encode_long`."""
        with self._autocast():
            encoded = super().encode_long(wave)
        return encoded._replace(states=encoded.states.float())

    def _autocast(self) -> torch.autocast:
        device = next(self.model.parameters()).device.type
        return torch.autocast(device, self._dtype)


def build_recognizer(
    loaded: LoadedModel,
    device: str,
    decoding: Mapping[str, Any],
    word_times: bool,
    engine: Engine,
) -> Recognizer:
    """Build what an engine asks for.

    Arguments
    ---------
    loaded : LoadedModel
        The model; changed where it is compiled or quantized.
    device : str
        As `find_device` takes it; ``auto`` is the CPU where only that will do.
    decoding : Mapping[str, Any]
        Decoding options by name, in place of the model folder's.
    word_times : bool
        Whether hypotheses come with times.
    engine : Engine
        How the encoder is computed.

    Returns
    -------
    Recognizer
        It has the whole model still, for the decoders.

    Raises
    ------
    DeviceError
        When the device is not there, or cannot do it.
    ModelFolderError
        When the folder holds no graph for ONNX Runtime.
    OnnxError
        When ONNX Runtime is missing.
    CompileError
        When torch cannot compile the model.
    """
    place = _place(device, engine)
    model = loaded.model.to(place)
    if engine.quantize and engine.backend == "torch":
        quantize_encoder(model)
    if engine.compile:
        compile_encoder(model)
    rest = model, loaded.tokenizer, loaded.decoding(decoding), word_times
    if engine.backend == "onnx":
        name = ONNX_INT8 if engine.quantize else ONNX
        return OnnxRecognizer(OnnxModel(read_graph(loaded, name), name), *rest)
    if engine.dtype != "float32":
        return HalfPrecisionRecognizer(getattr(torch, engine.dtype), *rest)
    return Recognizer(*rest)


def _place(device: str, engine: Engine) -> torch.device:
    if engine.backend == "torch" and not engine.quantize:
        return find_device(device)
    if device == "auto":
        device = "cpu"
    place = find_device(device)
    if place.type != "cpu":
        raise DeviceError(
            f"int8 and ONNX Runtime are for the CPU here, not for {device}; "
            "use --device cpu, or --dtype bfloat16 on a GPU"
        )
    return place


def quantize_encoder(model: Any) -> None:
    """Round matrices of the encoder to 8 bits, by output channel.

    What they are multiplied with is rounded anew in each call (dynamic
    quantization).

    Arguments
    ---------
    model : MalaASR
        Changed in place; on the CPU.
    """
    from torch.ao import quantization

    kinds = {nn.Linear: quantization.per_channel_dynamic_qconfig}
    with warnings.catch_warnings():
        # That this part of torch will move to another package some day.
        warnings.simplefilter("ignore")
        for layer in model.transformer.encoder.layers:
            for name in _QUANTIZED:
                part = getattr(layer, name)
                use_plain_linear(part)
                quantization.quantize_dynamic(part, kinds, inplace=True)


def compile_encoder(model: Any) -> None:
    """Have torch compile the feed-forward modules, for any length.

    Arguments
    ---------
    model : MalaASR
        Changed in place.

    Raises
    ------
    CompileError
        When there is no compiler.
    """
    parameter = next(model.parameters())
    for layer in model.transformer.encoder.layers:
        for name in _FEED_FORWARD:
            getattr(layer, name).compile(dynamic=True)
    # Now, for a batch of one and of several: not amid the first recording.
    try:
        for batch in (1, 2):
            x = parameter.new_zeros(batch, 64, model.config["d_model"])
            with torch.no_grad():
                for layer in model.transformer.encoder.layers:
                    for name in _FEED_FORWARD:
                        getattr(layer, name)(x)
    except Exception as error:  # of many kinds, by what is missing
        line = " ".join(str(error).split())
        raise CompileError(
            f"torch cannot compile the model here ({line[:200]}); install a "
            "C++ compiler such as g++, or leave out --compile"
        ) from error
