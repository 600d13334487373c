"""Weights & Biases: offline unless asked otherwise, never a prompt, and never in training's way."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

Record = Mapping[str, int | float | str | None]
"""One object of `metrics.jsonl`."""


@runtime_checkable
class Dashboard(Protocol):
    """Where a run's records also go."""

    def log(self, record: Record) -> None:
        """Show one record, which has a `step`."""
        ...

    def histogram(self, name: str, step: int, counts: Mapping[int | None, int]) -> None:
        """Show how often each value came up to a step; `None` is unlimited."""
        ...

    def close(self, failed: bool) -> None:
        """End the run."""
        ...


class NoDashboard:
    """Shows nothing."""

    def log(self, record: Record) -> None:
        """Show nothing."""

    def histogram(self, name: str, step: int, counts: Mapping[int | None, int]) -> None:
        """Show nothing."""

    def close(self, failed: bool) -> None:
        """End nothing."""


class WandbDashboard:
    """One W&B run per run folder, under `wandb/` in it; a resumed run goes on under its id.

    What fails at the start stops the run before it has begun. What fails later is said once, and training goes on:
    the same records stand in `metrics.jsonl`.
    """

    def __init__(self, folder: Path, mode: str, project: str, name: str | None, config: dict[str, Any]) -> None:
        import wandb  # here, because it is slow to load and only one rank needs it

        _refuse_to_ask(mode)
        (folder / "wandb").mkdir(parents=True, exist_ok=True)
        identity = folder / "wandb" / "run-id"
        settings = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, init_timeout=15.0, finish_timeout=60.0
        )
        try:
            self.run = wandb.init(
                dir=folder,
                mode="online" if mode == "online" else "offline",
                project=project,
                name=name or folder.name,
                id=identity.read_text(encoding="utf-8") if identity.exists() else None,
                resume="allow",
                config=config,
                reinit="create_new",  # a sweep's jobs follow each other in one process
                settings=settings,
            )
        except wandb.Error as error:
            other = "offline" if mode == "online" else "disabled"
            raise ValueError(
                f"logger.wandb={mode} could not start ({' '.join(str(error).split())}); try logger.wandb={other}"
            ) from error
        identity.write_text(self.run.id, encoding="utf-8")
        self.run.define_metric("*", step_metric="step")

    def log(self, record: Record) -> None:
        """Show one record over its own `step`."""
        self.run.log({name: value for name, value in record.items() if value is not None})

    def histogram(self, name: str, step: int, counts: Mapping[int | None, int]) -> None:
        """Show a histogram with a bin for each whole number, and the share of what is unlimited as a line."""
        import wandb

        limited = {value: count for value, count in counts.items() if value is not None}
        shown: dict[str, Any] = {"step": step, f"{name}_unlimited_share": counts.get(None, 0) / sum(counts.values())}
        if limited:
            values = range(min(limited), max(limited) + 1)
            heights = [limited.get(value, 0) for value in values]
            edges = [value - 0.5 for value in (*values, values[-1] + 1)]
            shown[f"{name}_histogram"] = wandb.Histogram(np_histogram=(np.asarray(heights), np.asarray(edges)))
        self.run.log(shown)

    def show(self, name: str, picture: Path) -> None:
        """Show a picture."""
        import wandb

        self.run.log({name: wandb.Image(str(picture))})

    def close(self, failed: bool) -> None:
        """End the run with an exit code."""
        self.run.finish(exit_code=int(failed))


class ForgivingDashboard:
    """A dashboard that is left out after its first failure, which is said."""

    def __init__(self, dashboard: Dashboard, say: Callable[[str], None]) -> None:
        self.dashboard: Dashboard = dashboard
        self.say = say

    def log(self, record: Record) -> None:
        """Show one record, if it still works."""
        self._attempt(lambda: self.dashboard.log(record))

    def histogram(self, name: str, step: int, counts: Mapping[int | None, int]) -> None:
        """Show a histogram, if it still works."""
        self._attempt(lambda: self.dashboard.histogram(name, step, counts))

    def close(self, failed: bool) -> None:
        """End the run, if it still works."""
        self._attempt(lambda: self.dashboard.close(failed))

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # whatever it is, it must not cost the training
            self.dashboard = NoDashboard()
            self.say(f"W&B stopped working ({type(error).__name__}: {error}); training goes on; metrics.jsonl is whole")


def _refuse_to_ask(mode: str) -> None:
    import wandb

    if mode == "online" and not wandb.login(prompt=False, verify=False):
        raise ValueError(
            "logger.wandb=online finds no credentials; run `wandb login`, set WANDB_API_KEY or use logger.wandb=offline"
        )
