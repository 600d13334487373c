"""Names that every room shares: units, the streaming law and the process group's shape.

Axis names used in shape annotations:

| axis | meaning |
| --- | --- |
| `batch` | utterances, or sessions |
| `samples` | audio samples at the model's rate (16 kHz) |
| `frames` | feature frames (10 ms) |
| `mels` | mel filter-bank channels |
| `encoder_frames` | encoder output frames (40 ms) |
| `d_model` | encoder channels |
| `symbols` | output tokens of a transcript |
| `vocab` | output units, blank included |
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Seconds = float
"""A duration or a point in time, in seconds."""

BLANK = 0
"""The transducer's and CTC's blank id. The tokenizer asserts it once; everything else imports it."""

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Window:
    """How many inputs an output may depend on before and after its own block of `stride`; `None` is unlimited."""

    left: int | None
    right: int | None


@runtime_checkable
class Streamable(Protocol[State]):
    """A box on the path from samples to text that runs whole utterances and pieces with one arithmetic.

    `stride`, `left` and `right` are counted in the box's own input frames: one output per `stride`
    inputs, which depends on at most `left` inputs before its block of `stride` (`None`: on all) and `right` after it.
    """

    stride: int
    right: int

    @property
    def left(self) -> int | None:
        """Inputs before the block."""
        ...

    def initial_state(self, batch: int) -> State:
        """The state before the first piece."""
        ...

    def stream(self, piece: Float[Tensor, "batch piece ..."], state: State) -> tuple[Tensor, State]:
        """The outputs that `piece` completes, and the state after it."""
        ...

    def flush(self, state: State) -> tuple[Tensor, State]:
        """What the right context still held back; a second flush gives nothing."""
        ...


@runtime_checkable
class World(Protocol):
    """What evaluation needs to know of the process group (see `chunkwise.training.distributed`)."""

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many processes there are."""
        ...

    @property
    def device(self) -> torch.device:
        """Where this process's tensors live."""
        ...

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that writes results."""
        ...

    def sum_counts(self, counts: Int[Tensor, " counts"]) -> Int[Tensor, " counts"]:
        """The int64 counts added over all ranks."""
        ...

    def gather_texts(self, texts: Sequence[str]) -> list[str] | None:
        """All ranks' texts in rank order, on rank 0; `None` elsewhere."""
        ...

    def share_text(self, text: str) -> str:
        """Rank 0's text, on every rank."""
        ...

    def deal(self, count: int) -> Iterator[int]:
        """The numbers from 0 to `count` that fall to this rank: each to the rank that first asks for it."""
        ...

    def sign(self, doing: str) -> None:
        """Say what this rank does from now on; who waits for it hears this: `decoding batch 3 of 7`."""
        ...

    def barrier(self, purpose: str) -> None:
        """Wait, with an end, until every rank is here; the purpose is what those who wait are said to do."""
        ...
