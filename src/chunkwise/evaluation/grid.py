"""Word error rates over a grid of contexts, as papers print them: left down, chunk size across, full above."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chunkwise.evaluation.result_plots import GridRates, plot_grid
from chunkwise.evaluation.run_folder import StoredMetrics
from chunkwise.evaluation.tables import markdown_table, show_interval, show_rate
from chunkwise.evaluation.typed_json import to_json, write_atomically
from chunkwise.models.context import ENCODER_FRAME_MS, FULL, ChunkContext


@dataclass(frozen=True, slots=True)
class ContextGrid:
    """The metrics of one set of weights on one set of utterances, in the full context and in those of the grid."""

    title: str
    metrics: Mapping[ChunkContext, StoredMetrics]

    @property
    def chunks(self) -> list[int]:
        """The chunk sizes in encoder frames, as they were asked for."""
        return list(dict.fromkeys(context.chunk_frames for context in self.metrics if context.chunk_frames is not None))

    @property
    def lefts(self) -> list[int | None]:
        """The left contexts in chunks, as they were asked for."""
        return list(dict.fromkeys(context.left_chunks for context in self.metrics if context != FULL))

    def rows(self, cell: Callable[[StoredMetrics], str]) -> list[list[str]]:
        """The cells below the chunk sizes, each row beginning with its left context."""
        return [
            [show_left(left), *(cell(self.metrics[ChunkContext(chunk, left)]) for chunk in self.chunks)]
            for left in self.lefts
        ]


def write_grid(folder: Path, grid: ContextGrid) -> None:
    """Write `contexts.json`, `contexts.md` and `contexts.png`."""
    rates = GridRates(
        full=grid.metrics[FULL].wer,
        columns=[show_chunk(chunk) for chunk in grid.chunks],
        rows=[show_left(left) for left in grid.lefts],
        cells=[[grid.metrics[ChunkContext(chunk, left)].wer for chunk in grid.chunks] for left in grid.lefts],
    )
    write_atomically(folder / "contexts.png", plot_grid(grid.title, rates))
    write_atomically(folder / "contexts.md", f"# {grid.title}\n\n{show_grid(grid)}\n")
    write_atomically(folder / "contexts.json", to_json(_content(grid)))


def show_grid(grid: ContextGrid) -> str:
    """The tables in Markdown: the rates, then the intervals that they lie in."""
    full = grid.metrics[FULL]
    between = "" if full.wer_interval is None else f" ({show_interval(full.wer_interval)})"
    header = ["left context", *map(show_chunk, grid.chunks)]
    return "\n\n".join(
        [
            f"WER by the size of a chunk (across) and its left context (down), of {full.words:,} words in "
            f"{full.utterances:,} utterances.",
            f"Full context: **{show_rate(full.wer)}**{between}.",
            markdown_table(header, grid.rows(lambda metrics: show_rate(metrics.wer))),
            "In 95 % of resamples:",
            markdown_table(header, grid.rows(_interval)),
        ]
    )


def show_chunk(chunk_frames: int) -> str:
    """A chunk size for people.

    >>> show_chunk(16)
    '640 ms'
    """
    return f"{chunk_frames * ENCODER_FRAME_MS} ms"


def show_left(left_chunks: int | None) -> str:
    """A left context for people.

    >>> show_left(None), show_left(1), show_left(0)
    ('unlimited', '1 chunk', '0 chunks')
    """
    return "unlimited" if left_chunks is None else f"{left_chunks} chunk{'' if left_chunks == 1 else 's'}"


def _interval(metrics: StoredMetrics) -> str:
    return "n/a" if metrics.wer_interval is None else show_interval(metrics.wer_interval)


def _content(grid: ContextGrid) -> dict[str, object]:
    """What `contexts.json` holds: rates are fractions, times are in ms, `null` is unlimited or undefined."""
    full = grid.metrics[FULL]
    contexts: Sequence[dict[str, object]] = [
        {
            "context": context.label,
            "chunk_frames": context.chunk_frames,
            "left_chunks": context.left_chunks,
            "chunk_ms": None if context.chunk_frames is None else context.chunk_frames * ENCODER_FRAME_MS,
            "left_ms": None if context.left_frames is None else context.left_frames * ENCODER_FRAME_MS,
            "substitutions": metrics.substitutions,
            "deletions": metrics.deletions,
            "insertions": metrics.insertions,
            "sentence_errors": metrics.sentence_errors,
            "wer": metrics.wer,
            "wer_interval": metrics.wer_interval,
        }
        for context, metrics in grid.metrics.items()
    ]
    return {"title": grid.title, "utterances": full.utterances, "words": full.words, "contexts": contexts}
