"""The runs of the precision experiment side by side: a table, and their losses and loss scales in one picture."""

import argparse
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from chunkwise.evaluation.run_folder import RunFacts, read_evaluations, read_rows
from chunkwise.evaluation.tables import markdown_table

COLOURS = ("#222222", "#2a8f5b", "#1f5fa8", "#7fb2e5", "#c23b22", "#e8a33d")
LAST = 10
"""Steps over which the final loss is taken."""


@dataclass(frozen=True)
class Run:
    """One run: its name, and what it logged at each step."""

    name: str  # without the seed
    seed: int
    rows: list[dict[str, float]]
    wer: float | None
    train_s: float

    @property
    def steps(self) -> list[dict[str, float]]:
        """The updates that were taken, not the windows that were dropped."""
        return [row for row in self.rows if row["loss"] is not None and row["grad_norm"] is not None]

    @property
    def final_loss(self) -> float:
        """The mean loss of the last steps."""
        return fmean(row["loss"] for row in self.steps[-LAST:])


def read_run(folder: Path) -> Run:
    """A run folder, evaluated on its training utterances."""
    facts, scores = RunFacts.read(folder), read_evaluations(folder)
    kind = facts.setting("precision.kind")
    name = f"fp16 from {facts.setting('precision.grad_scaler.init_scale'):g}" if kind == "fp16" else kind
    rows = [row for row in read_rows(folder / "metrics.jsonl") if "loss" in row]
    return Run(name, facts.setting("seed"), rows, scores["train", "full"].metrics.wer, facts.train_s)


def order(run: Run) -> tuple[bool, bool, float, int]:
    """fp32 first, then bf16, then fp16 from the smallest scale on."""
    return run.name != "fp32", run.name != "bf16", run.rows[0]["scale"], run.seed


def table(runs: dict[str, list[Run]]) -> str:
    """One line per precision and first scale, over its seeds."""
    header = ["precision", "seeds", "final loss per seed", "WER on training", "dropped", "scale, first and last", "s"]
    lines = []
    for name, seeds in runs.items():
        ends = " ".join(f"{run.final_loss:.1e}" for run in seeds)
        rates = " ".join("·" if run.wer is None else f"{100 * run.wer:.2f} %" for run in seeds)
        dropped = " ".join(f"{run.rows[-1]['skipped_steps']:g}" for run in seeds)
        scales = " ".join(f"{run.rows[0]['scale']:g}→{run.rows[-1]['scale']:g}" for run in seeds)
        chosen = ", ".join(str(run.seed) for run in seeds)
        lines.append([name, chosen, ends, rates, dropped, scales, f"{fmean(run.train_s for run in seeds):.0f}"])
    return markdown_table(header, lines)


def draw(runs: dict[str, list[Run]], picture: Path) -> None:
    """Losses over each other above, loss scales below."""
    figure = Figure(figsize=(9, 6.4), layout="constrained", dpi=120)
    above, below = figure.subplots(2, 1, sharex=True)
    for colour, (name, seeds) in zip(COLOURS, runs.items(), strict=False):
        for run in seeds:
            label = name if run is seeds[0] else None
            _draw_line(above, [(row["step"], row["loss"]) for row in run.steps], colour, label)
            if name.startswith("fp16"):
                _draw_line(below, [(row["step"], row["scale"]) for row in run.rows], colour, label)
    above.set(yscale="log", ylabel="loss per token (nats)", title="Loss of every step, all seeds")
    above.set_ylim(bottom=1e-8)  # below, fp32's rounding draws
    below.set_yscale("log", base=2)
    below.set(xlabel="optimizer step", ylabel="loss scale", title="Loss scale of fp16")
    above.legend(frameon=False, ncols=2)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture)


def _draw_line(axes: Axes, points: list[tuple[float, float]], colour: str, label: str | None) -> None:
    axes.plot(*zip(*points, strict=True), color=colour, linewidth=0.8, alpha=0.8, label=label)


def main() -> None:
    """Read the runs, print the table, draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, evaluated on eval.split=train")
    parser.add_argument("--picture", type=Path, default=Path("runs/precision.png"))
    chosen = parser.parse_args()
    runs: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(map(read_run, chosen.runs), key=order):
        runs[run.name].append(run)
    print(table(runs))
    draw(runs, chosen.picture)
    print(chosen.picture)


if __name__ == "__main__":
    main()
