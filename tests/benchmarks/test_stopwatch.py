"""The stopwatch charges every moment of a step to exactly one part."""

import torch
from torch import Tensor, nn

from mala_asr.benchmarks.stopwatch import Stopwatch, backward


class Clock:
    """A clock that only moves when told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Work(torch.autograd.Function):
    """Identity that takes time in both directions."""

    @staticmethod
    def forward(ctx, x: Tensor, clock: Clock, there: float, back: float):
        ctx.clock, ctx.back = clock, back
        clock.now += there
        return x.clone()

    @staticmethod
    def backward(ctx, grad: Tensor):
        ctx.clock.now += ctx.back
        return grad, None, None, None


class Worker(nn.Module):
    def __init__(self, clock: Clock, there: float, back: float):
        super().__init__()
        self.work = clock, there, back

    def forward(self, x: Tensor) -> Tensor:
        return Work.apply(x, *self.work)


def test_forward_and_backward_of_each_module_are_told_apart():
    clock = Clock()
    watch = Stopwatch(clock)
    first, second = Worker(clock, 1.0, 3.0), Worker(clock, 2.0, 5.0)
    between = Worker(clock, 0.25, 0.5)  # not watched
    watch.watch(first, "forward", "first")
    watch.watch(second, "forward", "second")
    x = torch.ones(3, requires_grad=True)

    watch.start()
    # The residual reaches x around both modules.
    (x + second(between(first(x * 2.0)))).sum().backward()

    assert watch.stop() == {
        "other": 0.75,
        "first": 1.0,
        "second": 2.0,
        backward("first"): 3.0,
        backward("second"): 5.0,
    }


def test_parts_that_follow_each_other_directly_are_told_apart():
    clock = Clock()
    watch = Stopwatch(clock)
    first, second = Worker(clock, 1.0, 3.0), Worker(clock, 2.0, 5.0)
    watch.watch(first, "forward", "first")
    watch.watch(second, "forward", "second")
    x = torch.ones(3, requires_grad=True)

    watch.start()
    second(first(x)).sum().backward()

    spent = watch.stop()
    assert spent[backward("first")] == 3.0
    assert spent[backward("second")] == 5.0


def test_a_part_inside_another_is_not_counted_twice():
    clock = Clock()
    watch = Stopwatch(clock)
    inner = Worker(clock, 4.0, 0.0)
    outer = nn.Sequential(Worker(clock, 1.0, 0.0), inner)
    watch.watch(outer, "forward", "outer")
    watch.watch(inner, "forward", "inner")

    watch.start()
    outer(torch.ones(1))

    assert watch.stop() == {"other": 0.0, "inner": 4.0, "outer": 1.0}


def test_watching_changes_no_result_and_no_gradient():
    torch.manual_seed(0)
    layer = nn.Linear(4, 2)
    x = torch.randn(3, 4, requires_grad=True)
    plain = layer(x)
    (expected,) = torch.autograd.grad(plain.square().sum(), x)

    watch = Stopwatch()
    watch.watch(layer, "forward", "layer")
    watch.start()
    watched = layer(x)
    (found,) = torch.autograd.grad(watched.square().sum(), x)

    assert torch.equal(watched, plain)
    assert torch.equal(found, expected)
