"""Dependency matrices as pictures: how strongly, what may be, and what must not be."""

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from torch import Tensor

from chunkwise.analysis.comparison import Dependence

MOST_COLUMNS = 600
"""More inputs than this are drawn several to a column."""

DECADES = 4
"""How far below a row's strongest entry a strength still has a colour."""

_INK, _BORDER, _RED = "#222222", "#1f5fa8", "#c23b22"


def draw_dependences(picture: Path, dependences: Sequence[Dependence], title: str) -> None:
    """Write a PNG with a panel per system."""
    columns = 2 if len(dependences) > 1 else 1
    rows = -(-len(dependences) // columns)
    figure = Figure(figsize=(6.4 * columns, 3.4 * rows + 0.6), layout="constrained", dpi=110)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, dependence in zip(panels, dependences, strict=False):
        draw_dependence(axes, dependence)
    for axes in panels[len(dependences) :]:
        axes.set_axis_off()
    figure.suptitle(title, color=_INK, fontsize=12, parse_math=False)
    picture.parent.mkdir(parents=True, exist_ok=True)
    draft = picture.with_name(f".{picture.name}.tmp")
    figure.savefig(draft, format="png")
    draft.replace(picture)


def draw_dependence(axes: Axes, dependence: Dependence, title: str | None = None) -> None:
    """One matrix: the darker, the stronger; the blue line is what may be, red is what must not be."""
    system, violations = dependence.system, dependence.violations
    num_outputs, num_inputs = system.expected.shape
    extent = (-0.5, num_inputs - 0.5, num_outputs - 0.5, -0.5)
    axes.imshow(
        relative_decades(dependence).numpy(), extent=extent, cmap="Greys", vmin=0, vmax=DECADES + 2, aspect="auto",
        interpolation="nearest",
    )  # fmt: skip
    if violations.any():
        shown = pooled(violations.float())
        red = ListedColormap([_RED])
        axes.imshow(
            shown.where(shown > 0, torch.nan).numpy(), extent=extent, cmap=red, aspect="auto", interpolation="nearest"
        )
    _draw_border(axes, system.expected)
    count = int(violations.sum())
    name = title or system.name.replace("_", " ")
    axes.set_title(f"{name}: {f'{count} violations' if count else 'within bounds'}", fontsize=10, color=_INK)
    axes.set(xlabel=system.inputs, ylabel=system.outputs, xlim=extent[:2], ylim=extent[2:])


def relative_decades(dependence: Dependence) -> Float[Tensor, "outputs columns"]:
    """Strengths on a logarithmic scale: 0 is nothing, 2 the faintest with a colour, `DECADES + 2` a row's strongest."""
    strengths = next(iter(dependence.methods.values()))
    values = torch.zeros(dependence.system.expected.shape)
    values[:, strengths.positions] = (strengths.values * strengths.seen).float()
    values = pooled(values)
    relative = values / values.amax(dim=1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
    return (relative.log10() + DECADES).clamp(min=0).add(2).where(values > 0, 0.0)


def pooled(values: Float[Tensor, "outputs inputs"]) -> Float[Tensor, "outputs columns"]:
    """The strongest of neighbouring columns, where there are too many to draw."""
    width = -(-values.shape[1] // MOST_COLUMNS)
    return torch.nn.functional.max_pool1d(values[None], width, ceil_mode=True)[0] if len(values) else values


def _draw_border(axes: Axes, expected: Bool[Tensor, "outputs inputs"]) -> None:
    """Steps along each row's first and last input that may matter."""
    columns = torch.arange(expected.shape[1])
    first = torch.where(expected, columns, expected.shape[1]).amin(dim=1) - 0.5
    last = torch.where(expected, columns, -1).amax(dim=1) + 0.5
    rows = torch.arange(len(expected) + 1) - 0.5
    for edge in (first, last):
        axes.stairs(edge.numpy(), rows.numpy(), orientation="horizontal", baseline=None, color=_BORDER, linewidth=1.2)
