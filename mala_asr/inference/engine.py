"""What computes the encoder: the choices that cost accuracy or time to load.

Kept free of torch, so that a command line can refuse what does not go
together at once; engines.py does what is asked for here.
"""

from __future__ import annotations

from dataclasses import dataclass

from mala_asr.errors import UsageError

BACKENDS = ("torch", "onnx")
DTYPES = ("float32", "bfloat16", "float16")
QUANTIZATIONS = ("int8",)
# What a model folder's weights may be stored in.
STORED_DTYPES = ("float32", "float16")


@dataclass(frozen=True)
class Engine:
    """How the encoder is computed.

    Arguments
    ---------
    backend : str
        ``torch``, or ``onnx``: ONNX Runtime on the CPU, with the graph that
        ``mala-asr export --onnx`` puts into the model folder.
    dtype : str
        ``float32``, or ``bfloat16`` or ``float16`` for the matrix products
        and convolutions; features, statistics and the decoder stay in
        float32.
    compile : bool
        Whether torch compiles the feed-forward modules, where most of the
        time goes: seconds when the model is loaded, for a faster run.
    quantize : str, optional
        ``int8`` rounds the matrices of the feed-forward and convolution
        modules (torch), or of all linear layers (onnx), to 8 bits.

    Raises
    ------
    UsageError
        When the choices do not go together.

    Example
    -------
    >>> Engine(quantize="int8").backend
    'torch'
    """

    backend: str = "torch"
    dtype: str = "float32"
    compile: bool = False
    quantize: str | None = None

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("backend", self.backend, BACKENDS),
            ("dtype", self.dtype, DTYPES),
            ("quantize", self.quantize, (None, *QUANTIZATIONS)),
        ):
            if value not in choices:
                names = ", ".join(c for c in choices if c is not None)
                raise UsageError(f"{name} is {value!r}; choose from {names}")
        half = self.dtype != "float32"
        if self.backend == "onnx" and (half or self.compile):
            raise UsageError(
                "ONNX Runtime computes the graph as it was written; leave "
                "out dtype and compile with backend onnx"
            )
        if self.quantize and (half or self.compile):
            raise UsageError(
                "int8 takes the place of dtype and compile; give one of them"
            )
