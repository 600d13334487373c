"""How attention over whole utterances is cut, so that a limited left context costs time linear in their length."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from chunkwise.nn.masks import within_reach

BLOCK_FRAMES = 64
"""Queries that share one window of keys: fewer waste less of the window, more make larger products."""


@dataclass(frozen=True)
class Blocks:
    """Blocks of queries, each with one window of keys: block n sees the `left` frames before it and its own.

    Every `[batch * blocks, ...]` tensor holds the blocks of the first utterance, then those of the second.
    """

    batch: int
    frames: int
    size: int  # queries of a block
    left: int  # frames of the window before the block
    visible: Bool[Tensor, "batch_blocks 1 query window"]  # True: may be seen; `query` is 1 where all see the same

    @property
    def count(self) -> int:
        """How many blocks an utterance has."""
        return -(-self.frames // self.size)

    @property
    def window(self) -> int:
        """Keys of a block."""
        return self.left + self.size

    def queries(self, x: Float[Tensor, "batch frames heads dim"]) -> Float[Tensor, "batch_blocks query heads dim"]:
        """Each block's own frames; a last, short one is filled with copies of its last frame."""
        if self.count * self.size == self.frames:
            return x.reshape(-1, self.size, *x.shape[2:])
        return x.index_select(1, self.own_places).reshape(-1, self.size, *x.shape[2:])

    def windows(self, x: Float[Tensor, "batch frames heads dim"]) -> Float[Tensor, "batch_blocks window heads dim"]:
        """Each block's window; what it lacks at the edges is filled with frames that `visible` excludes."""
        if self.count == 1 and self.left == 0:
            return x
        return x.index_select(1, self.window_places).reshape(-1, self.window, *x.shape[2:])

    def join(self, y: Float[Tensor, "batch_blocks query channels"]) -> Float[Tensor, "batch frames channels"]:
        """The blocks put together again."""
        joined = y.reshape(self.batch, -1, y.shape[2])
        return joined if joined.shape[1] == self.frames else joined[:, : self.frames]  # a slice costs a gradient copy

    @cached_property
    def own_places(self) -> Int[Tensor, " places"]:
        """The frame at each place of `queries`."""
        return torch.arange(self.count * self.size, device=self.visible.device).clamp(max=self.frames - 1)

    @cached_property
    def window_places(self) -> Int[Tensor, " places"]:
        """The frame at each place of `windows`."""
        return window_frames(self.count, self.size, self.left, self.visible.device).flatten().clamp(0, self.frames - 1)


def window_frames(count: int, size: int, left: int, device: torch.device) -> Int[Tensor, "blocks window"]:
    """Which frame stands at each place of each block's window; below 0 and above the utterance lies nothing.

    >>> window_frames(2, 3, 1, torch.device("cpu")).tolist()
    [[-1, 0, 1, 2], [2, 3, 4, 5]]
    """
    starts = torch.arange(count, device=device) * size - left
    return starts[:, None] + torch.arange(left + size, device=device)


def cut_into_blocks(valid: Bool[Tensor, "batch frames"], chunk_frames: int | None, left_chunks: int | None) -> Blocks:
    """The blocks of a padded batch under a chunk rule: a frame sees its chunk, and `left_chunks` before it.

    Full context and an unlimited left context need one block. A frame may always see itself, so that padding, which
    nobody reads, still has a softmax.
    """
    batch, frames = valid.shape
    if chunk_frames is None:
        some = valid | (torch.arange(frames, device=valid.device) == 0)
        return Blocks(batch, frames, frames, 0, some[:, None, None])
    size, left = frames, 0
    if left_chunks is not None:
        grouped = chunk_frames * max(1, round(BLOCK_FRAMES / chunk_frames))
        if left_chunks * chunk_frames + grouped < frames:
            size, left = grouped, left_chunks * chunk_frames
    count = -(-frames // size)
    keys = window_frames(count, size, left, valid.device)[:, None, :]
    queries = keys[:, :, left:].transpose(1, 2)
    exists = valid[:, keys.clamp(0, frames - 1)] & (keys >= 0) & (keys < frames)
    visible = (within_reach(queries, keys, chunk_frames, left_chunks) & exists) | (keys == queries)
    return Blocks(batch, frames, size, left, visible.flatten(0, 1)[:, None])
