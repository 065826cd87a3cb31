"""The device that a model runs on."""

from __future__ import annotations

import torch

from mala_asr.errors import MalaError


class DeviceError(MalaError):
    """A device that this machine or this installation does not have."""


def find_device(name: str) -> torch.device:
    """Find a device by its name.

    Arguments
    ---------
    name : str
        ``auto``, ``cpu``, ``cuda``, ``cuda:1`` ...

    Returns
    -------
    torch.device
        The device.

    Raises
    ------
    DeviceError
        When there is no such device.

    Example
    -------
    >>> find_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        # Only an attempt to use a device tells whether it is there.
        device = torch.empty(0, device=name).device
        if device.type == "meta":  # it has no values
            raise RuntimeError("nothing can be computed there")
    except (RuntimeError, AssertionError) as error:
        raise DeviceError(
            f"device '{name}' is not available; use cpu, or cuda where torch "
            "has CUDA"
        ) from error
    return device
