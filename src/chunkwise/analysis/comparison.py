"""What was measured along a path, held against what may depend on what, and one method against the other."""

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from jaxtyping import Bool
from torch import Tensor

from chunkwise.analysis.measurement import Strengths
from chunkwise.analysis.systems import System
from chunkwise.models.context import ChunkContext

CLEAR = 100
"""Methods contradict each other where one sees this many times its tolerance and the other nothing."""


class DependencyError(ValueError):
    """A result depends on what it must not see, or two measurements of it contradict each other."""


@dataclass(frozen=True, slots=True)
class Dependence:
    """What the outputs of a system depend on, by each method that measured it."""

    system: System
    gradient: Strengths | None
    perturbation: Strengths | None

    @property
    def methods(self) -> dict[str, Strengths]:
        """The measurements by the name of their method."""
        both = {"gradient": self.gradient, "perturbation": self.perturbation}
        return {name: strengths for name, strengths in both.items() if strengths is not None}

    @property
    def seen(self) -> Bool[Tensor, "outputs inputs"]:
        """Dependencies that any method saw."""
        seen = torch.zeros_like(self.system.expected)
        for strengths in self.methods.values():
            seen[:, strengths.positions] |= strengths.seen
        return seen

    @property
    def measured(self) -> Bool[Tensor, " inputs"]:
        """The inputs that some method looked at."""
        looked = torch.zeros(self.system.expected.shape[1], dtype=torch.bool)
        for strengths in self.methods.values():
            looked[strengths.positions] = True
        return looked

    @property
    def violations(self) -> Bool[Tensor, "outputs inputs"]:
        """Dependencies that must not be."""
        return self.seen & ~self.system.expected

    @property
    def unseen(self) -> Bool[Tensor, "outputs inputs"]:
        """Dependencies that may be and that no method saw, though it looked."""
        return self.system.expected & ~self.seen & self.measured

    @property
    def contradictions(self) -> Bool[Tensor, "outputs inputs"]:
        """Where one method clearly sees a dependency and the other one none."""
        found = torch.zeros_like(self.system.expected)
        if self.gradient is None or self.perturbation is None:
            return found
        positions = self.perturbation.positions
        gradient = replace(self.gradient, values=self.gradient.values[:, positions], positions=positions)
        needed = CLEAR * torch.maximum(gradient.threshold, self.perturbation.threshold)[:, None]
        one = (gradient.values > needed) & ~self.perturbation.seen
        other = (self.perturbation.values > needed) & ~gradient.seen
        found[:, positions] = one | other
        return found

    @property
    def left(self) -> int:
        """The farthest that an output was seen to reach back, in inputs before its own block."""
        return max((int(start - row[0]) for start, row in self._rows()), default=0)

    @property
    def right(self) -> int:
        """The farthest that an output was seen to reach ahead, in inputs after its own block."""
        return max((int(row[-1] - start) - self.system.stride + 1 for start, row in self._rows()), default=0)

    def lookahead(self, context: ChunkContext) -> int | None:
        """The inputs that a chunk was seen to need, counted from its start; `None` in full context.

        For systems whose outputs are encoder frames.
        """
        if context.chunk_frames is None:
            return None
        chunk_inputs = context.chunk_frames * self.system.stride
        return max((int(row[-1] + 1 - start + start % chunk_inputs) for start, row in self._rows()), default=0)

    def check(self) -> None:
        """Raise a `DependencyError` that names the outputs and inputs where a constraint does not hold."""
        for what, found in (
            ("depends on what it must not see", self.violations),
            ("is seen differently by gradients and pokes", self.contradictions),
        ):
            if bool(found.any()):
                raise DependencyError(f"{self.system.name} {what}: {self.named(found)}")

    def named(self, found: Bool[Tensor, "outputs inputs"], most: int = 5) -> str:
        """Where a matrix is True, in words."""
        rows = found.any(dim=1).nonzero()[:, 0].tolist()
        said = [
            f"{self.system.outputs} {row} on {self.system.inputs}s {spans(found[row])} "
            f"(allowed: {spans(self.system.expected[row])})"
            for row in rows[:most]
        ]
        return "; ".join(said) + (f"; and {len(rows) - most} more {self.system.outputs}s" if len(rows) > most else "")

    def _rows(self) -> list[tuple[Tensor, Tensor]]:
        """The start of each output's block, and the inputs that it was seen to depend on."""
        rows = [row.nonzero()[:, 0] for row in self.seen]
        return [(start, row) for start, row in zip(self.system.starts, rows, strict=True) if len(row)]


def spans(row: Bool[Tensor, " inputs"]) -> str:
    """The True entries of a row as ranges.

    >>> spans(torch.tensor([True, True, True, False, True]))
    '0-2, 4'
    """
    found = row.nonzero()[:, 0].tolist()
    if not found:
        return "none"
    borders = [found[0], *(x for a, b in pairwise(found) if b - a > 1 for x in (a, b)), found[-1]]
    pairs = zip(borders[::2], borders[1::2], strict=True)
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)
