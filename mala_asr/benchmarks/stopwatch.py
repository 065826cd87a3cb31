"""Where the time of a training step goes, part by part.

A part is a method, such as a module's forward. Its backward starts when the
gradient of its result is known, and is over when the gradient of its argument
is. Autograd works in the reverse order of the forward, so every moment belongs
to exactly one part and the parts add up to the whole step. Made for the CPU,
where calls are synchronous.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from torch import Tensor

OTHER = "other"


class Stopwatch:
    """Charge every moment to the part that runs.

    Arguments
    ---------
    clock : callable
        Gives the time in seconds.

    Example
    -------
    >>> ticks = iter([0.0, 1.0, 4.0, 9.0])
    >>> watch = Stopwatch(clock=lambda: next(ticks))
    >>> watch.start()
    >>> _ = watch.switch("attention")
    >>> _ = watch.switch("other")
    >>> watch.stop()
    {'other': 6.0, 'attention': 3.0}
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._spent: dict[str, float] = defaultdict(float)
        self._part = OTHER
        self._since = 0.0

    def start(self) -> None:
        """Forget what was measured and start with the part `other`."""
        self._spent.clear()
        self._part = OTHER
        self._since = self._clock()

    def switch(self, part: str) -> str:
        """Charge the time until now to the part that ran; run another.

        Arguments
        ---------
        part : str
            What runs from now on.

        Returns
        -------
        str
            What ran before.
        """
        now = self._clock()
        before = self._part
        self._spent[before] += now - self._since
        self._part, self._since = part, now
        return before

    def stop(self) -> dict[str, float]:
        """Stop.

        Returns
        -------
        dict of str to float
            Seconds of each part.
        """
        self.switch(OTHER)
        return dict(self._spent)

    def watch(self, owner: object, method: str, part: str) -> None:
        """Charge a method's forward and backward to a part.

        Arguments
        ---------
        owner : object
            A module, for example; only this object's method is watched.
        method : str
            Name of the method. Its first tensor argument and its first
            tensor result bound the backward.
        part : str
            The forward is charged to `part`, the backward to
            `part + " (backward)"`.
        """
        function = getattr(owner, method)

        def begin(_: Tensor) -> None:
            self.switch(backward(part))

        def end(_: Tensor) -> None:
            # Where one part's argument is another's result, that one has
            # begun already.
            if self._part == backward(part):
                self.switch(OTHER)

        def watched(*args: Any, **kwargs: Any) -> Any:
            around = self.switch(part)
            _when_ready(_first_tensor((args, kwargs)), end)
            result = function(*args, **kwargs)
            _when_ready(_first_tensor(result), begin)
            self.switch(around)
            return result

        setattr(owner, method, watched)


def backward(part: str) -> str:
    """Name the backward pass of a part.

    Arguments
    ---------
    part : str
        A part of the forward pass.

    Returns
    -------
    str

    Example
    -------
    >>> backward("attention")
    'attention (backward)'
    """
    return f"{part} (backward)"


def _when_ready(tensor: Tensor | None, hook: Callable[[Tensor], None]) -> None:
    """Call a hook when the gradient of a tensor is known."""
    if tensor is not None and tensor.requires_grad:
        tensor.register_hook(hook)


def _first_tensor(value: Any) -> Tensor | None:
    """The first floating-point tensor in nested containers."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else None
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, tuple | list):
        return None
    found = (_first_tensor(item) for item in value)
    return next((tensor for tensor in found if tensor is not None), None)
