"""What an encoder frame may see, and the distributions from which training draws it."""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np


@dataclass(frozen=True, slots=True)
class ChunkContext:
    """The chunk size in encoder frames (40 ms) and the chunks of left context; `None` is unlimited.

    >>> ChunkContext(16, None).label
    '640ms'
    """

    chunk_frames: int | None = None
    left_chunks: int | None = None

    def __post_init__(self) -> None:
        if self.chunk_frames is not None and self.chunk_frames < 1:
            raise ValueError(f"chunking.chunk_frames={self.chunk_frames} must be 1 or more, or null for full context")
        if self.left_chunks is not None and self.left_chunks < 0:
            raise ValueError(f"chunking.left_chunks={self.left_chunks} must be 0 or more, or null for unlimited")
        if self.chunk_frames is None and self.left_chunks is not None:
            raise ValueError(
                f"chunking.left_chunks={self.left_chunks} limits nothing while chunking.chunk_frames is null; "
                "set chunking.chunk_frames, or leave chunking.left_chunks null"
            )

    @property
    def left_frames(self) -> int | None:
        """The left context in encoder frames."""
        if self.chunk_frames is None or self.left_chunks is None:
            return None
        return self.chunk_frames * self.left_chunks

    @property
    def label(self) -> str:
        """A short name: `full`, `640ms`, or `640ms-left2`."""
        if self.chunk_frames is None:
            return "full"
        left = "" if self.left_chunks is None else f"-left{self.left_chunks}"
        return f"{self.chunk_frames * ENCODER_FRAME_MS}ms{left}"


ENCODER_FRAME_MS = 40
FULL = ChunkContext()


class ChunkingKind(StrEnum):
    """The distributions of the encoder's context during training."""

    full = "full"
    fixed = "fixed"
    dynamic = "dynamic"
    uniform = "uniform"
    choices = "choices"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkingConfig:
    """From which distribution the chunk size and the left context of a step are drawn."""

    kind: ChunkingKind = ChunkingKind.full
    chunk_frames: int | None = None  # fixed: encoder frames (40 ms) per chunk; null: unlimited
    left_chunks: int | None = None  # fixed, uniform: chunks of left context; null: unlimited
    chunked_probability: float = 1.0  # dynamic: how often a step is chunked at all
    min_chunk_frames: int = 1  # dynamic
    max_chunk_frames: int = 1  # dynamic, uniform
    limited_left_probability: float = 0.0  # dynamic: how often a chunked step limits its left context
    min_left_chunks: int = 0  # dynamic
    max_left_chunks: int = 0  # dynamic
    longest_frames: int = 1000  # uniform: draws run from 1 to this many encoder frames
    full_above: float = 1.0  # uniform: a draw above this share of `longest_frames` means full context
    choices: list[list[int | None]] = field(default_factory=list)  # choices: [chunk_frames, left_chunks] pairs
    weights: list[float] = field(default_factory=list)  # choices: one weight per pair

    def __post_init__(self) -> None:
        ChunkContext(self.chunk_frames, self.left_chunks if self.kind is ChunkingKind.fixed else None)
        for name in ("chunked_probability", "limited_left_probability", "full_above"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"chunking.{name}={getattr(self, name)} must lie between 0 and 1")
        for low, high, least in (
            ("min_chunk_frames", "max_chunk_frames", 1),
            ("min_left_chunks", "max_left_chunks", 0),
        ):
            if not least <= getattr(self, low) <= getattr(self, high):
                raise ValueError(
                    f"chunking.{low}={getattr(self, low)} and chunking.{high}={getattr(self, high)} "
                    f"must satisfy {least} <= {low} <= {high}"
                )
        if self.kind is ChunkingKind.full and (self.chunk_frames, self.left_chunks) != (None, None):
            raise ValueError(
                f"chunking.chunk_frames={self.chunk_frames} has no meaning with chunking=full; use chunking=fixed"
            )
        if self.kind is ChunkingKind.choices:
            self._check_choices()

    def _check_choices(self) -> None:
        if (
            not self.choices
            or len(self.weights) != len(self.choices)
            or min(self.weights) < 0
            or sum(self.weights) <= 0
        ):
            raise ValueError(
                f"chunking.weights={self.weights} must give one non-negative weight per pair of "
                f"chunking.choices={self.choices}, and not all 0"
            )
        for pair in self.choices:
            if len(pair) != 2:
                raise ValueError(f"chunking.choices holds {pair}; each entry is a pair [chunk_frames, left_chunks]")
            ChunkContext(*pair)


def draw_context(config: ChunkingConfig, seed: int, step: int) -> ChunkContext:
    """The context of one optimizer step: a function of `(seed, step)` alone.

    Hence it is the same on every rank and after a resume, and validation cannot disturb it.

    >>> draw_context(ChunkingConfig(kind=ChunkingKind.fixed, chunk_frames=16), seed=1, step=7)
    ChunkContext(chunk_frames=16, left_chunks=None)
    """
    random = np.random.default_rng((seed, step))
    match config.kind:
        case ChunkingKind.full:
            return FULL
        case ChunkingKind.fixed:
            return ChunkContext(config.chunk_frames, config.left_chunks)
        case ChunkingKind.dynamic:
            return _draw_dynamic(config, random)
        case ChunkingKind.uniform:
            return _draw_uniform(config, random)
        case ChunkingKind.choices:
            weights = np.asarray(config.weights) / sum(config.weights)
            return ChunkContext(*config.choices[int(random.choice(len(weights), p=weights))])


def fixed_context(config: ChunkingConfig) -> ChunkContext:
    """The one context of an evaluation or a stream, which cannot be a distribution."""
    if config.kind not in (ChunkingKind.full, ChunkingKind.fixed):
        raise ValueError(
            f"chunking={config.kind} is a distribution for training; evaluate or stream with chunking=full, or "
            "with chunking=fixed chunking.chunk_frames=16 chunking.left_chunks=2"
        )
    return draw_context(config, seed=0, step=0)


def _draw_dynamic(config: ChunkingConfig, random: np.random.Generator) -> ChunkContext:
    """SpeechBrain's rule (`DynChunkTrainConfigRandomSampler`): chunked or full, then limited or unlimited left."""
    if random.random() >= config.chunked_probability:
        return FULL
    chunk_frames = int(random.integers(config.min_chunk_frames, config.max_chunk_frames, endpoint=True))
    if random.random() >= config.limited_left_probability:
        return ChunkContext(chunk_frames, None)
    return ChunkContext(
        chunk_frames, int(random.integers(config.min_left_chunks, config.max_left_chunks, endpoint=True))
    )


def _draw_uniform(config: ChunkingConfig, random: np.random.Generator) -> ChunkContext:
    """The rule of WeNet and icefall: one draw decides full or chunked, and its remainder the chunk size."""
    draw = int(random.integers(1, config.longest_frames, endpoint=True))
    if draw > config.full_above * config.longest_frames:
        return FULL
    return ChunkContext(draw % config.max_chunk_frames + 1, config.left_chunks)
