"""The first module with a number that is not finite is named, wherever in it the number was made."""

import math

import pytest
import torch
from torch import Tensor, nn

from chunkwise.training.watch import Passing, Watch


class Between(nn.Module):
    """Breaks between its two children."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.one = nn.Linear(2, 2)
        self.other = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.one(x) * self.factor)


class Cube(torch.autograd.Function):
    """The identity, with a gradient that is not."""

    @staticmethod
    def forward(ctx: object, *args: Tensor) -> Tensor:
        return args[0].clone()

    @staticmethod
    def backward(ctx: object, *grad_outputs: Tensor) -> Tensor:
        return grad_outputs[0] * math.inf


class BadBackward(nn.Module):
    """Breaks on the way back only."""

    def forward(self, x: Tensor) -> Tensor:
        result = Cube.apply(x)
        assert isinstance(result, Tensor)
        return result


def watched(module: nn.Module, x: Tensor) -> Watch:
    with Watch(module) as watch:
        module(x).sum().backward()
    return watch


@pytest.mark.parametrize("factor", [math.inf, math.nan])
def test_what_breaks_between_children_is_their_parents(factor: float) -> None:
    model = nn.Sequential(nn.Linear(2, 2), Between(factor), nn.Linear(2, 2))
    found = watched(model, torch.ones(3, 2)).first(Passing.input, Passing.output)
    assert found is not None
    assert (found.module, found.tensor, found.passing) == ("1", "1.other", Passing.input)
    assert (found.size, found.num_finite, found.low) == (6, 0, None)


def test_a_module_that_breaks_by_itself_is_named() -> None:
    broken = nn.Linear(2, 2)
    model = nn.Sequential(nn.Linear(2, 2), broken)
    with torch.no_grad():
        broken.weight[0, 0] = math.nan
    found = watched(model, torch.ones(3, 2)).first(Passing.input, Passing.output)
    assert found is not None
    assert (found.module, found.tensor, found.passing) == ("1", "1", Passing.output)
    assert (found.size, found.num_finite) == (6, 3)
    assert found.low == found.high is not None


def test_a_bad_input_is_nobodys_fault() -> None:
    found = watched(nn.Linear(2, 2), torch.full((1, 2), math.nan)).first(Passing.input, Passing.output)
    assert found is not None
    assert found.module == "the input"


def test_the_first_gradient_on_the_way_back_is_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), BadBackward(), nn.Linear(2, 2))
    watch = watched(model, torch.ones(3, 2))
    assert watch.first(Passing.input, Passing.output) is None
    found = watch.first(Passing.gradient)
    assert found is not None
    assert found.tensor == "1"


def test_what_is_finite_is_read_and_nothing_is_found() -> None:
    model = Between(2.0)
    watch = watched(model, torch.ones(3, 2))
    assert watch.first(*Passing) is None
    names = {(reading.passing, reading.tensor) for reading in watch.readings}
    assert {(Passing.gradient, "one.weight"), (Passing.input, "other"), (Passing.output, "Between")} <= names
    again = watched(model, torch.full((3, 2), 5.0))
    for reading in watch.readings:
        same = again.same(reading)
        assert same is not None
        assert (same.size, same.module) == (reading.size, reading.module)


def test_nothing_stays_behind() -> None:
    model = Between(1.0)
    watch = watched(model, torch.ones(3, 2))
    count = len(watch.readings)
    model(torch.ones(3, 2)).sum().backward()
    assert len(watch.readings) == count
