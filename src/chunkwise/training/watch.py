"""Where numbers stop being finite: every tensor that passes between the modules of a run, forward and backward."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


class Passing(StrEnum):
    """On which way a tensor was met."""

    input = "input"
    output = "output"
    gradient = "gradient"


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read off one tensor."""

    passing: Passing
    tensor: str  # the module that took or gave it, or whose gradient it is; or a parameter
    turn: int  # how often that tensor had been met before
    module: str  # in which it was computed
    size: int
    num_finite: int
    low: float | None  # of the finite numbers; `None` where there is none
    high: float | None

    @property
    def is_finite(self) -> bool:
        """Whether every number is."""
        return self.num_finite == self.size


class Watch:
    """Inside `with`, reads every tensor that a module takes or gives, and every gradient of those and of parameters.

    What a module computes between its children shows as the input of the next child, and is the module's own.

    >>> import torch
    >>> layers = nn.Sequential(nn.Linear(2, 2), nn.Softmax(dim=1))
    >>> with Watch(layers) as watch:
    ...     _ = layers(torch.full((1, 2), torch.inf))
    >>> watch.first(Passing.input, Passing.output).module
    'the input'
    """

    def __init__(self, module: nn.Module) -> None:
        self.readings: list[Reading] = []
        self._module = module
        self._calls: list[str] = []  # the modules at work, outermost first
        self._met: Counter[tuple[Passing, str]] = Counter()
        self._handles: list[RemovableHandle] = []

    def first(self, *passing: Passing) -> Reading | None:
        """The first reading of these ways with a number that is not finite."""
        return next(
            (reading for reading in self.readings if reading.passing in passing and not reading.is_finite), None
        )

    def same(self, other: Reading) -> Reading | None:
        """The reading of the same tensor that another watch read."""
        place = (other.passing, other.tensor, other.turn)
        return next((mine for mine in self.readings if (mine.passing, mine.tensor, mine.turn) == place), None)

    def __enter__(self) -> "Watch":
        for name, part in self._module.named_modules():
            self._watch_module(part, name or type(part).__name__)
        for name, parameter in self._module.named_parameters():
            if parameter.requires_grad:
                self._handles.append(parameter.register_hook(self._on_gradient(name, name.rpartition(".")[0])))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def _watch_module(self, part: nn.Module, name: str) -> None:
        def before(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            caller = self._calls[-1] if self._calls else "the input"
            for tensor in _tensors((args, kwargs)):
                self._read(Passing.input, name, caller, tensor)
            self._calls.append(name)

        def after(part: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            self._calls.pop()
            for tensor in _tensors(output):
                self._read(Passing.output, name, name, tensor)
                if tensor.requires_grad:
                    self._handles.append(tensor.register_hook(self._on_gradient(name, name)))

        self._handles += [part.register_forward_pre_hook(before, with_kwargs=True), part.register_forward_hook(after)]

    def _on_gradient(self, tensor: str, module: str) -> Callable[[Tensor], None]:
        return lambda gradient: self._read(Passing.gradient, tensor, module, gradient)

    def _read(self, passing: Passing, tensor: str, module: str, values: Tensor) -> None:
        turn = self._met[passing, tensor]
        self._met[passing, tensor] += 1
        finite = values.detach()[values.detach().isfinite()]
        low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (None, None)
        self.readings.append(Reading(passing, tensor, turn, module, values.numel(), finite.numel(), low, high))


def _tensors(values: Any) -> Iterator[Tensor]:
    """The real-valued tensors among arguments or results."""
    if isinstance(values, Tensor):
        if values.is_floating_point():
            yield values
    elif isinstance(values, Mapping):
        yield from _tensors(tuple(values.values()))
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _tensors(value)
