"""Plots of an evaluation as the bytes of PNG files: errors by length, error rates of speakers, delays of streams."""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import MaxNLocator

from chunkwise.evaluation.significance import Interval
from chunkwise.evaluation.tally import ScoredUtterance
from chunkwise.streaming.latency import Delays

_INK, _SOFT, _BLUE, _RED = "#222222", "#9aa4b0", "#1f5fa8", "#c23b22"
_LINES = (_BLUE, _RED, "#2e8540", "#7a4fa3", _SOFT)
_DASHES = ("-", "--", "-.", ":", (0, (1, 3)))
_MOST_ERRORS = 10  # more are drawn together
_LENGTHS = ((1, 2), (3, 5), (6, 10), (11, 20), (21, 40), (41, None))  # words; `None`: and more
_NAME = 24  # characters of a speaker's name


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerRate:
    """A speaker's word error rate, a fraction, and its interval where there is one."""

    name: str
    wer: float
    interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRates:
    """Word error rates, fractions or `None` where undefined, of the full context and of a grid of contexts."""

    full: float | None
    columns: Sequence[str]
    rows: Sequence[str]
    cells: Sequence[Sequence[float | None]]  # row by row


def plot_grid(title: str, rates: GridRates) -> bytes:
    """The grid as a table whose cells are the darker the more errors there are, below the full context's one."""
    size = 2.4 + 1.05 * max(3, len(rates.columns)), 1.6 + 0.42 * (1 + len(rates.rows))
    figure = Figure(figsize=size, layout="constrained", dpi=130)
    above, below = figure.subplots(2, 1, height_ratios=[1, len(rates.rows)])
    known = [rate for row in [[rates.full], *rates.cells] for rate in row if rate is not None]
    scale = Normalize(min(known, default=0.0), max(known, default=0.0) + 1e-9)
    _draw_cells(above, [[rates.full]], scale)
    above.set_yticks([0], ["full context"])
    above.set_xticks([])
    _draw_cells(below, rates.cells, scale)
    below.set_yticks(range(len(rates.rows)), rates.rows)
    below.set_xticks(range(len(rates.columns)), rates.columns)
    below.set_xlabel("chunk size", fontsize=9)
    below.set_ylabel("left context", fontsize=9)
    above.set_title("WER (%)", loc="left", fontsize=9, color=_INK)
    figure.suptitle(title, fontsize=10, color=_INK, parse_math=False)
    return _png(figure)


def plot_errors(utterances: Sequence[ScoredUtterance]) -> bytes:
    """How many utterances have how many word errors, and the WER of short utterances and of long ones."""
    figure = _figure(3.2)
    left, right = figure.subplots(1, 2)
    _draw_counts(left, utterances)
    _draw_lengths(right, utterances)
    return _png(figure)


def plot_speakers(speakers: Sequence[SpeakerRate]) -> bytes:
    """WER by speaker, from top to bottom in the order given, with its interval."""
    figure = _figure(1.1 + 0.24 * len(speakers))
    axes = figure.subplots()
    for place, speaker in enumerate(speakers):
        if speaker.interval is not None:
            axes.plot([100 * end for end in speaker.interval], [place, place], color=_SOFT, linewidth=2.5)
    axes.plot([100 * speaker.wer for speaker in speakers], range(len(speakers)), "o", color=_BLUE, markersize=5)
    names = [_drawable(speaker.name) for speaker in speakers]
    axes.set_yticks(range(len(speakers)), names, fontsize=8, parse_math=False)
    axes.set(xlabel="WER (%), with its 95 % interval", ylim=(len(speakers) - 0.5, -0.5))
    axes.set_xlim(left=0)
    _tidy(axes, "x")
    return _png(figure)


def plot_delays(delays: Mapping[str, Delays]) -> bytes:
    """The share of each kind of delay, by its name, that is at most so long; kinds without a delay are left out."""
    figure = _figure(3.4)
    axes = figure.subplots()
    some = {name: kind for name, kind in delays.items() if kind.counts}
    for index, (name, kind) in enumerate(some.items()):
        lengths = sorted(kind.counts)
        shares = np.cumsum([kind.counts[length] for length in lengths]) / kind.counts.total()
        style = {"color": _LINES[index % len(_LINES)], "linestyle": _DASHES[index % len(_DASHES)]}
        axes.step([lengths[0] / 1000, *(length / 1000 for length in lengths)], [0, *shares], where="post", **style)
        axes.lines[-1].set_label(name)
    axes.set(xlabel="delay (ms)", ylabel="share of delays at most so long", ylim=(0, 1.02))
    axes.legend(frameon=False, loc="lower right")
    _tidy(axes, "y")
    return _png(figure)


def _draw_cells(axes: Axes, cells: Sequence[Sequence[float | None]], scale: Normalize) -> None:
    values = np.ma.masked_invalid([[np.nan if rate is None else rate for rate in row] for row in cells])
    axes.imshow(values, cmap="Blues", norm=scale, alpha=0.8, aspect="auto")
    for row, column in np.ndindex(values.shape):
        rate = cells[row][column]
        color = "white" if rate is not None and scale(rate) > 0.6 else _INK
        text = "n/a" if rate is None else f"{100 * rate:.2f}"
        axes.text(column, row, text, ha="center", va="center", color=color, fontsize=9)
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)


def _draw_counts(axes: Axes, utterances: Sequence[ScoredUtterance]) -> None:
    counts = Counter(min(row.word_errors, _MOST_ERRORS) for row in utterances)
    most = max(counts, default=0)
    labels = [f"{errors}" if errors < _MOST_ERRORS else f"{errors}+" for errors in range(most + 1)]
    axes.bar(range(most + 1), [counts[errors] for errors in range(most + 1)], color=_BLUE, width=0.8)
    axes.set_xticks(range(most + 1), labels)
    axes.set(xlabel="word errors in an utterance", ylabel="utterances")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _tidy(axes, "y")


def _draw_lengths(axes: Axes, utterances: Sequence[ScoredUtterance]) -> None:
    """WER by the number of spoken words; above each bar, of how many utterances."""
    rows = [(len(row.reference.split()), row.word_errors) for row in utterances]
    labels = list[str]()
    for low, high in _LENGTHS:
        some = [(words, errors) for words, errors in rows if words >= low and (high is None or words <= high)]
        if some:
            words, errors = map(sum, zip(*some, strict=True))
            [bar] = axes.bar([len(labels)], [100 * errors / words], color=_RED)
            labels.append(f"{low}+" if high is None else f"{low}–{high}")
            place = bar.get_x() + bar.get_width() / 2, bar.get_height()
            offset = {"textcoords": "offset points", "xytext": (0, 3), "ha": "center", "fontsize": 8, "color": _INK}
            axes.annotate(f"{len(some)} utt.", place, **offset)
    axes.set_xticks(range(len(labels)), labels)
    axes.set(xlabel="words in the reference", ylabel="WER (%)")
    axes.set_ylim(0, max(1.0, 1.12 * axes.get_ylim()[1]))
    _tidy(axes, "y")


def _drawable(text: str) -> str:
    """A name, cut, with a box for what the font cannot draw; matplotlib would warn of each."""
    font = get_font(findfont(FontProperties()))
    short = text if len(text) <= _NAME else f"{text[:_NAME]}…"
    return "".join(letter if font.get_char_index(ord(letter)) else "▯" for letter in short)


def _figure(height_in: float) -> Figure:
    return Figure(figsize=(8.6, height_in), layout="constrained", dpi=110)


def _tidy(axes: Axes, across: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x" if across == "x" else "y", color="#e3e6ea", linewidth=0.8)
    axes.set_axisbelow(True)


def _png(figure: Figure) -> bytes:
    """The picture without the program's name and version, so that equal results are equal bytes."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()
