"""Learning rates as functions of the optimizer step.

A schedule is called with the number of the step that is about to be made,
counted from 1, so the first step already has its warmup rate. It holds no
state: the step number is saved with the checkpoint, and a resumed run reads
the same rates as one that was never stopped.
"""

from __future__ import annotations

import math


class NoamSchedule:
    """Linear warmup, then decay with the inverse square root of the step.

    The schedule of "Attention Is All You Need" (arXiv 1706.03762), scaled so
    that the rate reaches `peak` at the end of the warmup.

    Arguments
    ---------
    peak : float
        The highest rate.
    warmup_steps : int
        Steps until it is reached.

    Raises
    ------
    ValueError
        If one of them is no such number.

    Example
    -------
    >>> schedule = NoamSchedule(peak=1.0, warmup_steps=4)
    >>> [schedule(step) for step in (1, 2, 4, 16)]
    [0.25, 0.5, 1.0, 0.5]
    """

    def __init__(self, peak: float, warmup_steps: int) -> None:
        _check(peak, warmup_steps)
        self.peak = peak
        self.warmup_steps = max(1, warmup_steps)

    def plan(self, total_steps: int) -> None:
        """Take note of the length of the training, which changes nothing.

        Arguments
        ---------
        total_steps : int
            Optimizer steps of the whole training.
        """

    def __call__(self, step: int) -> float:
        """Give the learning rate of a step.

        Arguments
        ---------
        step : int
            Number of the step, from 1.

        Returns
        -------
        float
            Its learning rate.
        """
        return self.peak * min(
            step / self.warmup_steps, math.sqrt(self.warmup_steps / step)
        )


class CosineSchedule:
    """Linear warmup, then half a cosine down to a fraction of the peak.

    Arguments
    ---------
    peak : float
        The highest rate.
    warmup_steps : int
        Steps until it is reached.
    final_fraction : float
        The last step's rate, as a fraction of the peak.

    Raises
    ------
    ValueError
        If one of them is no such number.

    Example
    -------
    >>> schedule = CosineSchedule(peak=1.0, warmup_steps=2)
    >>> schedule.plan(total_steps=6)
    >>> [round(schedule(step), 3) for step in range(1, 7)]
    [0.5, 1.0, 0.854, 0.5, 0.146, 0.0]
    """

    def __init__(
        self, peak: float, warmup_steps: int, final_fraction: float = 0.0
    ) -> None:
        _check(peak, warmup_steps)
        self.peak = peak
        self.warmup_steps = max(1, warmup_steps)
        if not 0.0 <= final_fraction <= 1.0:
            raise ValueError(
                f"final_fraction is {final_fraction}; give one from 0 to 1"
            )
        self.final_fraction = final_fraction
        self.total_steps: int | None = None

    def plan(self, total_steps: int) -> None:
        """Set the step at which the rate reaches its lowest.

        Arguments
        ---------
        total_steps : int
            Optimizer steps of the whole training.
        """
        self.total_steps = total_steps

    def __call__(self, step: int) -> float:
        """Give the learning rate of a step.

        Arguments
        ---------
        step : int
            Number of the step, from 1.

        Returns
        -------
        float
            Its learning rate.

        Raises
        ------
        RuntimeError
            If `plan` was not called.
        """
        if self.total_steps is None:
            raise RuntimeError("plan() must be called before the first step")
        if step <= self.warmup_steps:
            return self.peak * step / self.warmup_steps
        decay_steps = max(1, self.total_steps - self.warmup_steps)
        progress = min(1.0, (step - self.warmup_steps) / decay_steps)
        cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
        return self.peak * (
            self.final_fraction + (1.0 - self.final_fraction) * cosine
        )


def _check(peak: float, warmup_steps: int) -> None:
    if not isinstance(peak, int | float) or not 0.0 < peak < math.inf:
        raise ValueError(f"peak is {peak}; give a learning rate above 0")
    if not isinstance(warmup_steps, int) or warmup_steps < 0:
        raise ValueError(f"warmup_steps is {warmup_steps}; give 0 or more")
