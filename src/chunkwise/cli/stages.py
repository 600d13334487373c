"""A job of several stages that remembers how long each took, and says which it does not repeat."""

import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from chunkwise.evaluation.typed_json import to_json, write_atomically
from chunkwise.typing import Seconds

Result = TypeVar("Result")


class Stages:
    """The stages of a job, timed in `stages.json` of its folder."""

    def __init__(self, folder: Path, resumed: bool) -> None:
        """`resumed`: an earlier call did some of the stages, and their times count."""
        self.folder = folder
        self.path = folder / "stages.json"
        known = resumed and self.path.exists()
        self.seconds: dict[str, Seconds] = json.loads(self.path.read_text(encoding="utf-8")) if known else {}

    @property
    def total_s(self) -> Seconds:
        """The time of all stages, those of an earlier call included."""
        return sum(self.seconds.values())

    def run(self, name: str, work: Callable[[], Result], reuse: bool) -> Result | None:
        """Do a stage and keep its time, or say that what it left is used again."""
        if reuse:
            print(
                f"== {name}: reusing {self.folder} ({self.seconds.get(name, 0.0):.0f} s when it was made)", flush=True
            )
            return None
        print(f"== {name}", flush=True)
        start = perf_counter()
        result = work()
        self.seconds[name] = max(round(perf_counter() - start, 2), self.seconds.get(name, 0.0))
        write_atomically(self.path, to_json(self.seconds))
        return result
