"""Where and how an evaluation runs."""

from dataclasses import dataclass
from enum import StrEnum


class EvalKind(StrEnum):
    """How evaluation is spread over ranks."""

    single = "single"
    sharded = "sharded"


class EvalPath(StrEnum):
    """How utterances are recognised; under the same context, both give the same words."""

    masked = "masked"  # as a whole, every frame seeing what the context allows
    streaming = "streaming"  # through sessions, piece by piece


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """Where evaluation runs, on which path and in which batches, none of which changes a result."""

    kind: EvalKind = EvalKind.sharded
    path: EvalPath = EvalPath.masked
    piece_ms: float = 100.0  # streaming: how much audio arrives at a time
    split: str = "test"
    max_batch_s: float = 120.0  # padded seconds of audio in a batch
    max_batch_utterances: int = 64  # streaming: sessions at a time

    def __post_init__(self) -> None:
        """Refuse batches that can hold nothing."""
        if not self.piece_ms > 0:
            raise ValueError(f"eval.piece_ms={self.piece_ms} must be more than 0; try 100")
        if not self.max_batch_s > 0:
            raise ValueError(f"eval.max_batch_s={self.max_batch_s} must be more than 0; try 120")
        if self.max_batch_utterances < 1:
            raise ValueError(f"eval.max_batch_utterances={self.max_batch_utterances} must be 1 or more; try 64")
        if not self.split:
            raise ValueError("eval.split='' must name a split of the corpus; try test")
