"""What a search believes was said."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Tokens, when each was emitted, and how likely they are.

    `frames` counts encoder frames (40 ms) from the start of the stream, one entry per token. `score`
    is a natural log-probability: of the one path that greedy search took, or of all paths that beam
    search merged.
    """

    tokens: list[int]
    frames: list[int]
    score: float
