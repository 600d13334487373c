"""Two independent ways to measure what depends on what: gradients, and finite pokes at the input.

Both give strengths, the change of an output per change of an input. A dependency is what exceeds

    max(tolerance * strongest entry of the output's row, resolution)

with a tolerance of 1e-5 in float32 and 1e-10 in float64. The resolution is what rounding can pretend: a few units in
the last place of the largest output, divided by the poke, and of the strongest entry of all. So a tiny poke in float32
sees strong dependencies only (1e-3: those above about 1e-3), and what it misses is no contradiction to the gradients.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Function = Callable[[Tensor], Tensor]
"""From `[batch, inputs, channels]` to `[batch, outputs, width]`, each row on its own."""

NOISE_FACTOR = 4
"""How many units in the last place rounding may move an output."""


class NumberFormat(StrEnum):
    """The precision of a measurement; float64 also finds the faintest dependencies of deep models."""

    float32 = "float32"
    float64 = "float64"

    @property
    def dtype(self) -> torch.dtype:
        """As torch names it."""
        return torch.float64 if self is NumberFormat.float64 else torch.float32

    @property
    def tolerance(self) -> float:
        """The share of a row's strongest entry up to which a strength is rounding."""
        return 1e-10 if self is NumberFormat.float64 else 1e-5


@dataclass(frozen=True, slots=True)
class Strengths:
    """How strongly each output depends on the inputs at `positions`, in order."""

    values: Float[Tensor, "outputs positions"]
    positions: Int[Tensor, " positions"]
    tolerance: float
    resolution: float  # strengths that rounding can pretend

    @property
    def seen(self) -> Bool[Tensor, "outputs positions"]:
        """Where there is a dependency."""
        return self.values > self.threshold[:, None]

    @property
    def threshold(self) -> Float[Tensor, " outputs"]:
        """The strength that a dependency of each output exceeds."""
        return (self.tolerance * self.values.amax(dim=1)).clamp(min=self.resolution)

    def cpu(self) -> "Strengths":
        """The same on the CPU."""
        return replace(self, values=self.values.cpu(), positions=self.positions.cpu())


def gradient_strengths(
    function: Function,
    bases: Float[Tensor, "draws inputs channels"],
    num_outputs: int,
    tolerance: float,
    generator: torch.Generator,
    batch_rows: int = 128,
) -> Strengths:
    """By gradients of randomly weighted outputs: row `i` of a batch is differentiated at its output `i` only.

    One forward and one backward give as many outputs' gradients as the batch has rows. Of several draws, each
    with its own base and weights, the strongest counts.
    """
    found = []
    pairs = torch.cartesian_prod(torch.arange(len(bases)), torch.arange(num_outputs)).to(bases.device)
    for draws, outputs in (part.T for part in pairs.split(batch_rows)):
        rows = bases[draws].requires_grad_()
        picked = function(rows)[torch.arange(len(outputs), device=bases.device), outputs]
        weights = _signs(picked.shape, generator).to(picked)
        (gradient,) = torch.autograd.grad((picked * weights).sum(), rows)
        found.append(_finite(gradient).norm(dim=2))
    strengths = torch.cat(found).unflatten(0, (len(bases), num_outputs)).amax(dim=0)
    positions = torch.arange(bases.shape[1], device=bases.device)
    return Strengths(strengths, positions, tolerance, _rounding(strengths, 0.0))


@torch.no_grad()
def poke_strengths(
    function: Function,
    bases: Float[Tensor, "draws inputs channels"],
    positions: Int[Tensor, " positions"],
    tolerance: float,
    generator: torch.Generator,
    poke: float = 1.0,
    batch_rows: int = 128,
) -> Strengths:
    """By finite pokes of root mean square `poke`, one position per row of a batch.

    The first draw pokes every position by itself. A dependency, once seen, needs no second look; so each later draw,
    with its own base and directions, pokes for every output all positions at once that it was not seen to depend on,
    and only if that moves an output is every position poked by itself again.
    """
    values, size = _one_by_one(function, bases[0], positions, generator, poke, batch_rows)
    strengths = Strengths(values, positions, tolerance, _rounding(values, size / poke))
    for base in bases[1:]:
        unseen, row = (~strengths.seen).unique(dim=0, return_inverse=True)
        together = _poked(base, positions, unseen, generator, poke)
        moved = torch.cat([part for part, _ in _changes(function, base, together, batch_rows)]) / poke
        if bool((moved[row, torch.arange(len(row))] > strengths.threshold).any()):
            again, _ = _one_by_one(function, base, positions, generator, poke, batch_rows)
            strengths = replace(strengths, values=torch.maximum(strengths.values, again))
    return strengths


def _one_by_one(
    function: Function, base: Tensor, positions: Tensor, generator: torch.Generator, poke: float, batch_rows: int
) -> tuple[Float[Tensor, "outputs positions"], float]:
    """The change of every output per poke at each position, and the size of the largest output of the base."""
    changes, size = [], 0.0
    for some in positions.split(batch_rows):
        where = torch.eye(len(some), dtype=torch.bool, device=some.device)
        ((change, size),) = _changes(function, base, _poked(base, some, where, generator, poke), batch_rows)
        changes.append(change)
    return torch.cat(changes).T / poke, size


def _poked(
    base: Float[Tensor, "inputs channels"],
    positions: Int[Tensor, " positions"],
    where: Bool[Tensor, "rows positions"],
    generator: torch.Generator,
    poke: float,
) -> Float[Tensor, "rows inputs channels"]:
    """Copies of the base, each poked in random directions at its own choice of positions."""
    pokes = poke * _signs((len(positions), base.shape[1]), generator).to(base)
    rows = base.repeat(len(where), 1, 1)
    row, place = where.nonzero().T
    rows[row, positions[place]] += pokes[place]
    return rows


def _changes(
    function: Function, base: Tensor, rows: Float[Tensor, "rows inputs channels"], batch_rows: int
) -> Iterator[tuple[Float[Tensor, "some outputs"], float]]:
    """How far each row's outputs lie from the base's, which stands around every batch, and the base's largest size."""
    for some in rows.split(batch_rows):
        outputs = _finite(function(torch.cat((base[None], some, base[None]))))
        sizes = outputs[0].norm(dim=1)
        if bool(((outputs[-1] - outputs[0]).norm(dim=1) > 1e-3 * sizes).any()):
            raise ValueError("the same input gives two outputs; put the model into evaluation mode")
        yield (outputs[1:-1] - outputs[0]).norm(dim=2), float(sizes.amax())


def _rounding(strengths: Float[Tensor, "outputs positions"], largest: float) -> float:
    """The strength that rounding can pretend where the largest output is so large per poke."""
    return NOISE_FACTOR * torch.finfo(strengths.dtype).eps * (largest + float(strengths.amax()))


def _signs(shape: tuple[int, ...] | torch.Size, generator: torch.Generator) -> Tensor:
    """Random signs: directions of root mean square 1 in which no channel is missed."""
    return 2.0 * torch.randint(2, shape, generator=generator) - 1.0


def _finite(values: Tensor) -> Tensor:
    if not bool(torch.isfinite(values).all()):
        raise ValueError(
            f"the measurement overflows {str(values.dtype).removeprefix('torch.')}; "
            "try a smaller analysis.poke, or analysis.number_format=float64"
        )
    return values
