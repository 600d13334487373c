"""Plots as PNG files: the training curve of a run, and a spectrogram with the times at which tokens were emitted."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from torch import Tensor

from chunkwise.audio.fbank import FbankConfig
from chunkwise.evaluation.run_folder import read_rows
from chunkwise.typing import Seconds

Emission = tuple[Seconds, str]
"""When a token was emitted, and its text."""

_INK, _SOFT, _BLUE, _RED, _CYAN = "#222222", "#9aa4b0", "#1f5fa8", "#c23b22", "#7fe0ff"


def plot_training_curve(metrics: Path, picture: Path) -> None:
    """Loss above, validation WER below, over optimizer steps, from a run's `metrics.jsonl`."""
    rows = read_rows(metrics)
    losses = _series(rows, "loss")
    if not losses:
        raise ValueError(f"{metrics} holds no training loss to plot; train at least one logged step")
    rates = [(step, 100 * rate) for step, rate in _series(rows, "validation_wer")]
    figure = Figure(figsize=(8, 5.6 if rates else 3.4), layout="constrained", dpi=120)
    axes = figure.subplots(2 if rates else 1, 1, sharex=True, squeeze=False)[:, 0]
    _draw_losses(axes[0], losses, _series(rows, "validation_loss"))
    if rates:
        _draw_rates(axes[1], rates)
    axes[-1].set_xlabel("optimizer step")
    _save(figure, picture)


def plot_spectrogram(
    picture: Path,
    features: Float[Tensor, "frames mels"],
    config: FbankConfig,
    emissions: Sequence[Emission],
    title: str,
    chunk_ms: float | None = None,
) -> None:
    """Log-mel energies over time, with a labelled line where each token was emitted; dotted lines are chunk borders."""
    if len(features) == 0:
        raise ValueError(f"{picture}: an utterance without a feature frame has no spectrogram; choose a longer one")
    duration_s = len(features) * config.shift_ms / 1000
    num_mels = features.shape[1]
    width_in = min(16.0, max(9.0, 2.2 * duration_s))
    figure = Figure(figsize=(width_in, 4.6), layout="constrained", dpi=120)
    axes = figure.subplots()
    energies = features.detach().float().cpu().numpy().T
    extent = (0.0, duration_s, 0.0, float(num_mels))
    image = axes.imshow(energies, origin="lower", aspect="auto", cmap="magma", extent=extent)
    figure.colorbar(image, ax=axes, label="log-mel energy", pad=0.01)
    _draw_emissions(axes, emissions, width_in)
    if chunk_ms is not None:
        _draw_chunks(axes, chunk_ms / 1000)
    _label_frequencies(axes, config, num_mels)
    axes.set(xlim=(0, duration_s), ylim=(0, num_mels), xlabel="time (s)", ylabel="frequency (Hz, mel scale)")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right", fontsize=8, facecolor="#333333", framealpha=0.75, labelcolor="white")
    figure.suptitle(title, color=_INK, fontsize=11, parse_math=False)
    _save(figure, picture)


def _series(rows: list[dict[str, float]], name: str) -> list[tuple[int, float]]:
    """The (step, value) pairs of the rows that have a finite value of that name."""
    return [(int(row["step"]), row[name]) for row in rows if row.get(name) is not None and math.isfinite(row[name])]


def _draw_losses(axes: Axes, losses: list[tuple[int, float]], validation: list[tuple[int, float]]) -> None:
    steps, values = zip(*losses, strict=True)
    axes.plot(steps, values, color=_SOFT, linewidth=0.8, label="logged step")
    axes.plot(steps, _smooth(values), color=_BLUE, linewidth=1.8, label="running mean")
    if validation:
        axes.plot(
            *zip(*validation, strict=True), color=_RED, linewidth=1.2, marker="o", markersize=3, label="validation"
        )
    if min(values) > 0:
        axes.set_yscale("log")
        plain = FuncFormatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_major_formatter(plain)
        axes.yaxis.set_minor_formatter(plain if max(values) < 10 * min(values) else FuncFormatter(lambda *_: ""))
    axes.set_ylabel("loss per token (nats)")
    axes.set_title("Loss", loc="left", fontsize=11, color=_INK)
    axes.legend(frameon=False)
    _tidy(axes)


def _draw_rates(axes: Axes, rates: list[tuple[int, float]]) -> None:
    steps, values = zip(*rates, strict=True)
    axes.plot(steps, values, color=_RED, linewidth=1.6, marker="o", markersize=4)
    axes.annotate(
        f"{values[-1]:.2f} %",
        (steps[-1], values[-1]),
        textcoords="offset points",
        xytext=(0, 9),
        ha="right",
        color=_RED,
    )
    axes.set_ylim(0, max(1.0, 1.15 * max(values)))
    axes.set_ylabel("WER (%)")
    axes.set_title("Validation word error rate", loc="left", fontsize=11, color=_INK)
    _tidy(axes)


def _smooth(values: Sequence[float], reach: int = 5) -> list[float]:
    """The mean over each value and `reach` neighbours on either side; fewer at the ends, and as many left as right."""
    means = []
    for index in range(len(values)):
        near = min(reach, index, len(values) - 1 - index)
        means.append(fmean(values[index - near : index + near + 1]))
    return means


def _draw_emissions(axes: Axes, emissions: Sequence[Emission], width_in: float) -> None:
    """A line per token and its text above the picture, on the lowest level where it meets no neighbour."""
    end_s, top = axes.get_xlim()[1], axes.get_ylim()[1]
    free_s = [0.0] * 4  # per level, where its last text ends
    for index, (time_s, piece) in enumerate(emissions):
        text = piece.replace("▁", "␣")
        half_s = (0.045 * len(text) + 0.03) * end_s / width_in
        level = next((row for row, free in enumerate(free_s) if time_s - half_s >= free), index % 4)
        free_s[level] = time_s + half_s
        axes.axvline(time_s, color=_CYAN, linewidth=1.1, label=None if index else "token emitted")
        axes.annotate(
            text,
            (time_s, top),
            textcoords="offset points",
            xytext=(0, 4 + 12 * level),
            ha="center",
            fontsize=9,
            color=_INK,
            annotation_clip=False,
            parse_math=False,
        )


def _draw_chunks(axes: Axes, chunk_s: Seconds) -> None:
    """A dotted line at each chunk's border."""
    for index in range(1, math.ceil(axes.get_xlim()[1] / chunk_s)):
        label = None if index > 1 else f"chunk of {1000 * chunk_s:.0f} ms"
        axes.axvline(index * chunk_s, color="white", linewidth=1.0, linestyle=(0, (1, 3)), label=label)


def _label_frequencies(axes: Axes, config: FbankConfig, num_mels: int) -> None:
    """Ticks in Hz on the axis of mel filters, whose centres are evenly spaced on Kaldi's mel scale."""
    low, high = _mel(config.low_hz), _mel(config.upper_hz)
    ticks_hz = [hz for hz in (250, 500, 1000, 2000, 4000, 8000) if config.low_hz < hz < config.upper_hz]
    positions = [(_mel(hz) - low) / (high - low) * (num_mels + 1) - 0.5 for hz in ticks_hz]
    axes.set_yticks(positions, [str(hz) for hz in ticks_hz])


def _mel(hz: float) -> float:
    return 1127.0 * math.log(1.0 + hz / 700.0)


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e3e6ea", linewidth=0.8)
    axes.set_axisbelow(True)


def _save(figure: Figure, picture: Path) -> None:
    """Write the PNG whole or not at all."""
    picture.parent.mkdir(parents=True, exist_ok=True)
    draft = picture.with_name(f".{picture.name}.tmp")
    figure.savefig(draft, format="png")
    draft.replace(picture)
