"""A model as one graph, from samples to log-probabilities, for other engines.

The features are inside, so that whoever runs the graph needs nothing else:

    waves    float32 (batch, samples): mono, in [-1, 1], zeros after the end
    samples  int64 (batch,): valid samples of each, >= 1
    log_probs  float32 (batch, CTC frames, vocab_size)
    lengths    int64 (batch,): valid CTC frames of each
    states     float32 (batch, frames, d_model): what a decoder attends to

Batch and length are free, and each utterance's result is its own, whatever
stands beside it. Nothing is written that was not compared with the model.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mala_asr.errors import MalaError
from mala_asr.inference.model_folder import (
    EXPORTED_PROGRAM,
    ONNX,
    ONNX_INT8,
    GraphWriter,
)
from mala_asr.inference.onnx_model import OnnxModel, install_hint
from mala_asr.models import MalaASR
from mala_asr.models.asr import BLANK_INDEX

INPUTS = ("waves", "samples")
OUTPUTS = ("log_probs", "lengths", "states")

# Log-probabilities of a graph may differ from the model's by this much.
TOLERANCE = 1e-3

# Seconds of the batches that a graph is compared on: one of several lengths,
# one short, one longer than what it was traced with.
_CHECKED = ((1.9, 1.0, 0.02), (0.3,), (7.3,))
_TRACED = (1.0, 0.75)

Graph = Callable[[Tensor, Tensor], Sequence[Tensor]]


class GraphError(MalaError):
    """A model that cannot be written as a graph."""


class WaveToLogProbs(nn.Module):
    """The model from samples to log-probabilities, as one call.

    Arguments
    ---------
    model : MalaASR
        The model, in evaluation mode.

    Example
    -------
    >>> model = MalaASR(
    ...     30, d_model=64, num_encoder_layers=1, ctc_weight=1.0, d_ffn=64
    ... )
    >>> graph = WaveToLogProbs(model.eval())
    >>> out = graph(torch.randn(2, 16000), torch.tensor([16000, 8000]))
    >>> [tuple(x.shape) for x in out]
    [(2, 26, 30), (2,), (2, 26, 64)]
    """

    def __init__(self, model: MalaASR) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, waves: Tensor, samples: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Encode samples; shapes as above.

        Arguments
        ---------
        waves : Tensor
            Samples, (batch, samples).
        samples : Tensor
            Valid ones of each, (batch,).

        Returns
        -------
        tuple of Tensor
            Log-probabilities, valid CTC frames, and encoder states.
        """
        states, lengths = self.model.encode(
            *self.model.features(waves, samples)
        )
        log_probs = self.model.ctc_log_probs(states)
        return log_probs, lengths * self.model.ctc_upsampling, states


def write_onnx(model: MalaASR, path: Path) -> None:
    """Write a model for ONNX Runtime.

    Arguments
    ---------
    model : MalaASR
        The model, in evaluation mode, on the CPU.
    path : Path
        The file, weights included.

    Raises
    ------
    GraphError
        When a library is missing, or the graph cannot be made or does not
        give what the model gives.
    """
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise GraphError(install_hint("writing ONNX")) from error
    with _quietly(), _explaining(model, "ONNX"):
        program: Any = torch.onnx.export(
            _exported(model),
            dynamo=True,
            input_names=INPUTS,
            output_names=OUTPUTS,
            verbose=False,
        )
        program.model.metadata_props.update(_facts(model))
        # Inside the file: another one beside it could get lost.
        program.save(path, external_data=False)
    _compare(model, OnnxModel(path.read_bytes(), path.name).run, path.name)


def write_onnx_int8(model: MalaASR, path: Path) -> None:
    """Write a graph once more, its matrices in 8 bits.

    The matrices of the linear layers are rounded per output channel, what
    they are multiplied with anew in each call (dynamic quantization); the
    convolutions and the attention's own products stay in float32.

    Arguments
    ---------
    model : MalaASR
        The model, in evaluation mode, on the CPU.
    path : Path
        The file; what `write_onnx` wrote must lie beside it.

    Raises
    ------
    GraphError
        As for `write_onnx`.
    """
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as error:
        raise GraphError(install_hint("writing ONNX")) from error
    with _quietly(), _explaining(model, "int8"):
        quantize_dynamic(
            path.with_name(ONNX),
            path,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QInt8,
        )
    given = OnnxModel(path.read_bytes(), path.name).run(*_noise(model, _TRACED))
    if not all(x.isfinite().all() for x in given):
        raise _impossible(model, path.name, "it gives no numbers")


def write_exported_program(model: MalaASR, path: Path) -> None:
    """Write a model for ``torch.export.load``.

    Arguments
    ---------
    model : MalaASR
        The model, in evaluation mode, on the CPU.
    path : Path
        The file, named ``*.pt2``.

    Raises
    ------
    GraphError
        When the graph cannot be made or does not give what the model gives.
    """
    with _quietly(), _explaining(model, "torch.export"):
        program = _exported(model)
        torch.export.save(program, path)
    _compare(model, program.module(), path.name)


# What writes each graph of a model folder, in the order needed.
WRITERS: dict[str, GraphWriter] = {
    ONNX: write_onnx,
    ONNX_INT8: write_onnx_int8,
    EXPORTED_PROGRAM: write_exported_program,
}


def _exported(model: MalaASR) -> torch.export.ExportedProgram:
    free = torch.export.Dim.DYNAMIC
    with torch.no_grad():
        return torch.export.export(
            WaveToLogProbs(model).eval(),
            _noise(model, _TRACED),
            dynamic_shapes={"waves": {0: free, 1: free}, "samples": {0: free}},
        )


def _noise(model: MalaASR, seconds: Sequence[float]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    samples = torch.tensor([round(s * model.sample_rate) for s in seconds])
    waves = torch.randn(len(seconds), int(samples.max()), generator=generator)
    shown = torch.arange(waves.shape[1]) < samples[:, None]
    return 0.1 * waves * shown, samples


def _facts(model: MalaASR) -> dict[str, str]:
    """What one must know to use the file alone."""
    return {
        "sample_rate": str(model.sample_rate),
        "frame_shift": str(model.frame_shift),
        "blank": str(BLANK_INDEX),
    }


def _compare(model: MalaASR, graph: Graph, name: str) -> None:
    """Refuse a graph that does not give what the model gives."""
    reference = WaveToLogProbs(model)
    for seconds in _CHECKED:
        batch = _noise(model, seconds)
        with torch.no_grad():
            wanted, counts, _ = reference(*batch)
            try:
                given, lengths, _ = graph(*batch)
            except (MalaError, RuntimeError) as error:
                raise _impossible(model, name, error) from error
        if not torch.equal(counts, lengths):
            raise _impossible(model, name, "its lengths are wrong")
        gap = max(
            float((a[:count] - b[:count]).abs().max())
            for a, b, count in zip(given, wanted, counts, strict=True)
        )
        if not gap <= TOLERANCE:
            raise _impossible(
                model, name, f"its log-probabilities are off by {gap:.2g}"
            )


def _impossible(model: MalaASR, name: str, why: object) -> GraphError:
    line = " ".join(str(why).split())
    return GraphError(
        f"{name} cannot be written for attention "
        f"{model.config['attention']}, whose graph does not hold for other "
        f"lengths ({line[:200]}); the model folder itself works without it"
    )


@contextmanager
def _explaining(model: MalaASR, name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, MalaError):
        raise
    except Exception as error:  # of many kinds, some of them internal
        raise _impossible(model, name, error) from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep the libraries' remarks to their developers out of the log."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
