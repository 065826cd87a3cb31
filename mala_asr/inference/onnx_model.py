"""Models of ONNX Runtime, in the place of torch's encoder.

The contract of such a file is told in graph.py, which writes it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mala_asr.errors import MalaError


class OnnxError(MalaError):
    """An ONNX model that cannot be used."""


def install_hint(what: str) -> str:
    """Say what to install.

    Arguments
    ---------
    what : str
        What needs it.

    Returns
    -------
    str
        The line.

    Example
    -------
    >>> install_hint("this")
    'this needs onnxruntime and onnxscript: pip install "mala_asr[onnx]"'
    """
    return (
        f'{what} needs onnxruntime and onnxscript: pip install "mala_asr[onnx]"'
    )


class OnnxModel:
    """A model in ONNX Runtime, on the CPU.

    It computes with as many threads as torch does.

    Arguments
    ---------
    content : bytes
        The file. Given as bytes, it can refer to no other file.
    name : str
        The file's name, for messages.

    Raises
    ------
    OnnxError
        When ONNX Runtime is missing or cannot read the file.
    """

    def __init__(self, content: bytes, name: str) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise OnnxError(install_hint("ONNX")) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # errors are raised besides
        self._releasing = onnxruntime.RunOptions()
        self._releasing.add_run_config_entry(
            "memory.enable_memory_arena_shrinkage", "cpu:0"
        )
        self._name = name
        try:
            self._session = onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its own classes have no common one
            raise self._error("cannot be loaded", error) from error

    def run(
        self, waves: Tensor, samples: Tensor, release: bool = False
    ) -> tuple[Tensor, ...]:
        """Compute all outputs.

        Arguments
        ---------
        waves : Tensor
            Samples, zero-padded, (batch, samples).
        samples : Tensor
            Valid ones of each, (batch,).
        release : bool
            Whether to give back at the end what it took, in place of keeping
            it for the next call: worth it after a long recording.

        Returns
        -------
        tuple of Tensor
            ``log_probs``, ``lengths`` and ``states``.

        Raises
        ------
        OnnxError
            When the model cannot compute this.
        """
        given = {"waves": waves.numpy(), "samples": samples.numpy()}
        try:
            found = self._session.run(
                None, given, self._releasing if release else None
            )
        except Exception as error:
            raise self._error("failed", error) from error
        return tuple(map(torch.from_numpy, found))

    def _error(self, what: str, error: Exception) -> OnnxError:
        line = " ".join(str(error).split())
        return OnnxError(f"{self._name} {what} in ONNX Runtime ({line[:200]})")
