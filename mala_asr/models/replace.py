"""Layers of a model put in the place of PyTorch's, and back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from torch import nn

from mala_asr.attention.linear import Linear
from mala_asr.models.dropout import Dropout

_Layer = TypeVar("_Layer", bound=nn.Module)
_AnyLinear = TypeVar("_AnyLinear", bound=nn.Linear)


def use_fast_layers(model: nn.Module) -> None:
    """Give a model the dropout and the linear layers that are fast on a CPU.

    Arguments
    ---------
    model : nn.Module
        Changed in place; its parameters stay the same.

    Example
    -------
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.1))
    >>> use_fast_layers(net)
    >>> [type(layer).__module__ for layer in net]
    ['mala_asr.attention.linear', 'mala_asr.models.dropout']
    """
    _replace(model, nn.Dropout, _fast_dropout)
    _replace(model, nn.Linear, partial(_with_parameters_of, Linear))


def use_plain_linear(model: nn.Module) -> None:
    """Give a model PyTorch's own linear layers again.

    Arguments
    ---------
    model : nn.Module
        Changed in place; its parameters stay the same.

    Example
    -------
    >>> net = nn.Sequential(Linear(2, 3))
    >>> use_plain_linear(net)
    >>> type(net[0]) is nn.Linear
    True
    """
    _replace(model, Linear, partial(_with_parameters_of, nn.Linear))


def _replace(
    module: nn.Module, kind: type[_Layer], make: Callable[[_Layer], nn.Module]
) -> None:
    """Replace what is of exactly this class."""
    for name, child in module.named_children():
        if type(child) is kind:
            setattr(module, name, make(child))
        else:
            _replace(child, kind, make)


def _fast_dropout(layer: nn.Dropout) -> nn.Dropout:
    return layer if layer.inplace else Dropout(layer.p)


def _with_parameters_of(kind: type[_AnyLinear], layer: nn.Linear) -> _AnyLinear:
    new = kind(
        layer.in_features,
        layer.out_features,
        bias=layer.bias is not None,
        device="meta",
    )
    new.weight, new.bias = layer.weight, layer.bias
    return new.train(layer.training)
