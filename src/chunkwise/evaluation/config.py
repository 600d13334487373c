"""Where and how an evaluation runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product

from chunkwise.models.context import FULL, ChunkContext


class EvalKind(StrEnum):
    """How evaluation is spread over ranks."""

    single = "single"
    sharded = "sharded"


class EvalPath(StrEnum):
    """How utterances are recognised; under the same context, both give the same words."""

    masked = "masked"  # as a whole, every frame seeing what the context allows
    streaming = "streaming"  # through sessions, piece by piece


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextGridConfig:
    """Chunk sizes times left contexts, evaluated by one command together with the full context."""

    chunk_frames: list[int] = field(default_factory=list)  # encoder frames (40 ms) per chunk; empty: no grid
    left_chunks: list[int | None] = field(default_factory=lambda: [None])  # chunks; null: unlimited

    def __post_init__(self) -> None:
        """Refuse what is no context, or the same one twice."""
        least = ("chunk_frames", 1, self.chunk_frames), ("left_chunks", 0, self.left_chunks)
        for name, low, values in least:
            if wrong := [value for value in values if value is not None and value < low]:
                raise ValueError(
                    f"eval.contexts.{name}={_listed(values)} holds {wrong[0]}, which must be {low} or more"
                )
            if len(set(values)) < len(values):
                raise ValueError(f"eval.contexts.{name}={_listed(values)} names a value twice; name each once")
        if not self.left_chunks:
            raise ValueError("eval.contexts.left_chunks=[] leaves no context; try [2,null], or leave it out")
        if self.left_chunks != [None] and not self.chunk_frames:
            raise ValueError(
                f"eval.contexts.left_chunks={_listed(self.left_chunks)} needs chunk sizes; "
                "set eval.contexts.chunk_frames too, e.g. [8,16,32]"
            )

    @property
    def contexts(self) -> list[ChunkContext]:
        """The full context, then each left context with each chunk size; nothing where no grid is asked for."""
        grid = [ChunkContext(chunk, left) for left, chunk in product(self.left_chunks, self.chunk_frames)]
        return [FULL, *grid] if grid else []


def _listed(values: Sequence[int | None]) -> str:
    """A list as it is written on the command line."""
    return f"[{','.join('null' if value is None else str(value) for value in values)}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """Where evaluation runs, on which path and in which batches, none of which changes a result."""

    kind: EvalKind = EvalKind.sharded
    path: EvalPath = EvalPath.masked
    piece_ms: float = 100.0  # streaming: how much audio arrives at a time
    split: str = "test"
    max_batch_s: float = 120.0  # padded seconds of audio in a batch
    max_batch_utterances: int = 64  # streaming: sessions at a time
    contexts: ContextGridConfig = field(default_factory=ContextGridConfig)

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
