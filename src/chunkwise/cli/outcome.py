"""What `chunkwise-evaluate` leaves in its folder and says on the terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from chunkwise.evaluation.comparison import compare, show_comparison, write_comparison
from chunkwise.evaluation.config import EvalConfig, EvalPath
from chunkwise.evaluation.grid import ContextGrid, show_grid, write_grid
from chunkwise.evaluation.results import show_evaluation, write_evaluation
from chunkwise.evaluation.run_folder import evaluation_name
from chunkwise.evaluation.tally import Evaluation
from chunkwise.models.context import ChunkContext
from chunkwise.text.tokenizer import Tokenizer

Streams = Mapping[str, object] | None
"""What is said of the streams of an evaluation, where it had any."""


def report_evaluations(
    folder: Path,
    subject: str,
    config: EvalConfig,
    evaluations: Mapping[ChunkContext, Evaluation],
    streams: Sequence[Streams],
    tokenizer: Tokenizer,
) -> str:
    """Write the one evaluation, or a folder for each of the grid's and its tables; what to say comes back."""
    streamed = ", streamed" if config.path is EvalPath.streaming else ""
    grid, lines = bool(config.contexts.contexts), list[str]()
    metrics = {}
    for (context, evaluation), described in zip(evaluations.items(), streams, strict=True):
        title = f"{subject}, {context.label}{streamed}"
        inside = folder / evaluation_name(config.split, context.label, config.path) if grid else folder
        metrics[context] = write_evaluation(inside, title, evaluation, described, tokenizer)
        lines.append(show_evaluation(title, evaluation, metrics[context], described))
    if not grid:
        return "\n".join([*lines, str(folder / "metrics.json"), str(folder / "report.html")])
    table = ContextGrid(f"{subject}{streamed}", metrics)
    write_grid(folder, table)
    return f"{show_grid(table)}\n\n{folder / 'contexts.md'}\n{folder / 'contexts.png'}"


def report_comparison(folder: Path, first: Path, second: Path) -> str:
    """Compare two evaluations and write what was found; what to say comes back."""
    comparison = compare(first, second)
    write_comparison(folder, comparison)
    return f"{show_comparison(comparison)}\n{folder / 'comparison.md'}"
