"""The run's memory in numbers: `metrics.jsonl`, the console and a dashboard, from rank 0."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any

from chunkwise.training.console import Console
from chunkwise.training.dashboard import Dashboard, ForgivingDashboard, NoDashboard, Record, WandbDashboard

METRICS = "metrics.jsonl"


class WandbMode(StrEnum):
    """Where W&B runs go."""

    offline = "offline"
    online = "online"
    disabled = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggerConfig:
    """What is logged beside `metrics.jsonl`, which is always written and has every step."""

    wandb: WandbMode = WandbMode.offline
    project: str = "chunkwise"
    name: str | None = None
    every_steps: int = 10  # between lines on the console, and between figures of throughput

    def __post_init__(self) -> None:
        """Refuse an interval that never comes."""
        if self.every_steps < 1:
            raise ValueError(f"logger.every_steps={self.every_steps} must be at least 1; try 10")


class RunLog:
    """Records to `metrics.jsonl` and the dashboard, sentences to the console; silent on ranks other than 0."""

    def __init__(self, path: Path | None, console: Console, dashboard: Dashboard, every_steps: int = 1) -> None:
        self.path = path
        self.console = console
        self.dashboard = dashboard
        self.every_steps = every_steps

    def say(self, text: str) -> None:
        """A line on the console."""
        self.console.say(text)

    def record(self, record: Record) -> None:
        """Keep one record, which has a `step`; a number that is not finite becomes null."""
        plain = {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in record.items()}
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(plain) + "\n")
        self.dashboard.log(plain)

    def histogram(self, name: str, step: int, counts: Mapping[int | None, int]) -> None:
        """Keep how often each value came so far, in `NAME_histogram.json`; `None` is unlimited."""
        if self.path is None:
            return
        named = {"unlimited" if value is None else str(value): counts[value] for value in sorted(counts, key=_last)}
        path = self.path.with_name(f"{name}_histogram.json")
        unfinished = path.with_name(f".{path.name}.unfinished")
        unfinished.write_text(json.dumps({"step": step, "counts": named}, indent=2) + "\n", encoding="utf-8")
        os.replace(unfinished, path)
        self.dashboard.histogram(name, step, counts)

    def close(self, failed: bool = False) -> None:
        """End the bar and the dashboard."""
        self.console.close()
        self.dashboard.close(failed)

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=kind is not None)


def open_log(
    folder: Path,
    config: LoggerConfig,
    run_config: dict[str, Any],
    *,
    max_steps: int,
    step: int = 0,
    is_main: bool = True,
) -> RunLog:
    """The log of a run that stands at `step`: what an earlier attempt wrote beyond it is taken back."""
    console = Console(max_steps, quiet=not is_main)
    if not is_main:
        return RunLog(None, console, NoDashboard(), config.every_steps)
    folder.mkdir(parents=True, exist_ok=True)
    metrics = folder / METRICS
    take_back(metrics, step)
    if config.wandb is WandbMode.disabled:
        return RunLog(metrics, console, NoDashboard(), config.every_steps)
    wandb = WandbDashboard(folder, str(config.wandb), config.project, config.name, run_config)
    return RunLog(metrics, console, ForgivingDashboard(wandb, console.say), config.every_steps)


def _last(value: int | None) -> float:
    """The order of a histogram's values: what is unlimited comes after all others."""
    return math.inf if value is None else value


def take_back(metrics: Path, step: int) -> None:
    """Drop the records of later steps than `step`, and a last line that was cut off."""
    if not metrics.exists():
        return
    kept = [line for line in metrics.read_text(encoding="utf-8").splitlines() if _is_up_to(line, step)]
    unfinished = metrics.with_name(f".{metrics.name}.unfinished")
    unfinished.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    os.replace(unfinished, metrics)


def _is_up_to(line: str, step: int) -> bool:
    try:
        return json.loads(line)["step"] <= step
    except json.JSONDecodeError:
        return False
