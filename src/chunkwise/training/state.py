"""What changes while training: how far it is, what it dropped, and how good it was."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from chunkwise.data.samplers import Position
from chunkwise.typing import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """How well the model does on the validation set; the same on every rank."""

    wer: float | None  # word errors per word; `None` where the references have no word
    loss: float | None = None  # per token

    @property
    def order(self) -> tuple[float, float]:
        """The smaller the better: by word error rate, ties by loss."""
        return _or_worst(self.wer), _or_worst(self.loss)


@dataclass(slots=True, kw_only=True)
class TrainState:
    """Everything that a resumed run must know besides weights, optimizer and loss scale.

    There are no generator states: randomness is a function of the seed and of these counters.
    """

    world_size: int = 1
    step: int = 0  # optimizer updates taken; the schedule's index
    skipped: int = 0  # windows dropped because a loss or gradient was not finite
    skipped_in_a_row: int = 0
    seconds: Seconds = 0.0  # of training: waiting for data and steps, on rank 0; not validation, not saving
    audio_s: Seconds = 0.0  # trained on, over all ranks
    position: Position = field(default_factory=Position)  # of the next batch
    unusable: set[str] = field(default_factory=set)  # utterances that could not be read, named once
    validated_step: int = 0  # the last step with a validation
    best: Validation | None = None
    best_step: int = 0

    @property
    def window(self) -> int:
        """The number of the next window of micro-batches, dropped ones counted."""
        return self.step + self.skipped

    def count(self, skipped: bool) -> None:
        """Count a window: as an update, or as dropped."""
        self.step += not skipped
        self.skipped += skipped
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if skipped else 0

    def improved(self, validation: Validation) -> bool:
        """Whether this validation is the best so far; if so it is kept."""
        if self.best is not None and validation.order >= self.best.order:
            return False
        self.best, self.best_step = validation, self.step
        return True

    def to_dict(self) -> dict[str, Any]:
        """The state in plain types, for a checkpoint."""
        return asdict(self) | {"unusable": sorted(self.unusable)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainState":
        """The state that `to_dict` gave."""
        best = values["best"]
        return cls(
            **values
            | {
                "position": Position(**values["position"]),
                "unusable": set(values["unusable"]),
                "best": None if best is None else Validation(**best),
            }
        )


def _or_worst(value: float | None) -> float:
    return math.inf if value is None or math.isnan(value) else value
