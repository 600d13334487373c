"""Which frames exist and which frames each frame may attend to; True always means "may be seen"."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def valid_frames(lengths: Int[Tensor, " batch"], num_frames: int) -> Bool[Tensor, "batch frames"]:
    """Which frames of a padded batch belong to the utterance.

    >>> valid_frames(torch.tensor([1, 3]), 3).int().tolist()
    [[1, 0, 0], [1, 1, 1]]
    """
    return torch.arange(num_frames, device=lengths.device) < lengths[:, None]


def chunk_visibility(
    num_frames: int, chunk_frames: int | None, left_chunks: int | None, device: torch.device | None = None
) -> Bool[Tensor, "query key"]:
    """Which encoder frames each frame may attend to under chunked attention.

    A frame sees its whole chunk, hence at most `chunk_frames - 1` frames of look-ahead, and the
    `left_chunks` chunks before it (`None`: all). Look-ahead does not grow with depth, because every
    layer shares the same chunk borders; this fixes the algorithmic latency. `chunk_frames` of `None`
    is full context.

    Reference: Zhang et al. 2020, "Unified Streaming and Non-streaming Two-pass End-to-end Model for
    Speech Recognition", arXiv:2012.05481.

    >>> chunk_visibility(6, chunk_frames=2, left_chunks=1).int().tolist()[4]
    [0, 0, 1, 1, 1, 1]
    """
    if chunk_frames is None:
        return torch.ones(num_frames, num_frames, dtype=torch.bool, device=device)
    frames = torch.arange(num_frames, device=device)
    return within_reach(frames[:, None], frames, chunk_frames, left_chunks)


def within_reach(
    queries: Int[Tensor, "*query_axes"], keys: Int[Tensor, "*key_axes"], chunk_frames: int, left_chunks: int | None
) -> Bool[Tensor, "*axes"]:
    """The chunk rule for frame numbers, which are broadcast against each other."""
    distance = queries.div(chunk_frames, rounding_mode="floor") - keys.div(chunk_frames, rounding_mode="floor")
    visible = distance >= 0  # in chunks; negative lies in the future
    return visible if left_chunks is None else visible & (distance <= left_chunks)
