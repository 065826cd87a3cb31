"""Linear layers that use all of a CPU's vector units.

PyTorch leaves float32 matrix products to MKL, which gives AVX-512 to CPUs of
its own maker alone: on others (AMD EPYC of family 26, "Zen 5") it runs at half
of what they can do. oneDNN, which comes with PyTorch too, asks the CPU what
it has. Its products are taken here through the operator that PyTorch's own
compiler uses, forward and backward, compiled or not; everywhere else than in
float32 on a CPU with AVX-512, and in exported graphs, it is PyTorch's linear
layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.utils.flop_counter import register_flop_formula

# Below so many multiplications what oneDNN prepares in each call costs more
# than it gains.
_FEWEST_PRODUCTS = 2**20
_MANY_FRAMES = 1024


def _find_onednn() -> Any:
    """Give the operator; None where it is missing or gains nothing."""
    capability = torch.backends.cpu.get_cpu_capability()
    if not torch.backends.mkldnn.is_available() or "AVX512" not in capability:
        return None
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None)


_ONEDNN = _find_onednn()


def _count_operations(
    x: torch.Size, weight: torch.Size, *args: Any, **kwargs: Any
) -> int:
    return 2 * x.numel() * weight[0]


if _ONEDNN is not None:  # so that counters of operations see them
    register_flop_formula(_ONEDNN)(_count_operations)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply ``x @ weight.T + bias``, by oneDNN where that is faster.

    Arguments
    ---------
    x : Tensor
        Shape (..., features_in).
    weight : Tensor
        Shape (features_out, features_in).
    bias : Tensor, optional
        Shape (features_out,).

    Returns
    -------
    Tensor
        Shape (..., features_out).

    Example
    -------
    >>> linear(torch.ones(2, 50, 3), torch.ones(4, 3)).shape
    torch.Size([2, 50, 4])
    """
    if not _onednn_suits(x, weight):
        return functional.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    # Without gradients, without the cost of a function that has some.
    apply = _OneDNNLinear.apply if torch.is_grad_enabled() else _product
    out: Tensor = apply(rows, weight, bias)
    return out.view(*x.shape[:-1], -1)


def _onednn_suits(x: Tensor, weight: Tensor) -> bool:
    if (
        _ONEDNN is None
        # What is exported is for any machine.
        or torch.compiler.is_exporting()
        or torch.jit.is_tracing()
        or not torch.backends.mkldnn.enabled
        or not x.is_cpu
        or not x.dtype == weight.dtype == torch.float32
        or torch.is_autocast_enabled("cpu")
    ):
        return False
    # A compiled graph is for any length.
    compiling: bool = torch.compiler.is_compiling()
    return compiling or x.numel() * weight.shape[0] >= _FEWEST_PRODUCTS


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Give ``x @ weight.T + bias`` of matrices, whatever their strides."""
    if torch.compiler.is_compiling():
        out: Tensor = _compiled_product(x, weight, bias)
    else:
        assert _ONEDNN is not None
        out = _ONEDNN(x, weight, bias, "none", [], "")
    return out


@torch.library.custom_op(
    "mala_asr::product",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
)
def _compiled_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Keep the product from the compiler, which cannot read oneDNN's here."""
    return _product(x, weight, bias)


@_compiled_product.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        of_x = _product(grad, weight.t()) if wanted[0] else None
        of_weight = None
        if wanted[1]:
            # oneDNN is faster with the smaller side as rows; from some number
            # of frames on that outweighs turning the gradient round.
            if len(x) >= _MANY_FRAMES and x.shape[1] < grad.shape[1]:
                of_weight = _product(x.t(), grad.t()).t()
            else:
                of_weight = _product(grad.t(), x.t())
        of_bias = grad.sum(0) if wanted[2] else None
        return of_x, of_weight, of_bias


class Linear(nn.Linear):
    """PyTorch's linear layer, by oneDNN where that is faster.

    Arguments
    ---------
    in_features, out_features, bias
        As PyTorch's.

    Example
    -------
    >>> Linear(3, 4)(torch.ones(2, 50, 3)).shape
    torch.Size([2, 50, 4])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer.

        Arguments
        ---------
        x : Tensor
            Shape (..., in_features).

        Returns
        -------
        Tensor
            Shape (..., out_features).
        """
        return linear(x, self.weight, self.bias)
