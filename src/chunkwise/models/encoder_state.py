"""What the encoder carries from chunk to chunk; how the states of several streams become one batch and part again."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from chunkwise.models.context import ChunkContext
from chunkwise.nn.attention import AttentionState
from chunkwise.nn.states import join_rows, split_rows
from chunkwise.nn.subsampling import SubsamplingState


@dataclass(frozen=True, slots=True)
class LayerState:
    """What one layer carries from chunk to chunk."""

    attention: AttentionState
    convolution: Float[Tensor, "batch past d_model"]


@dataclass(frozen=True, slots=True)
class EncoderState:
    """What the encoder carries from piece to piece; `pending` is the chunk that is not full yet."""

    context: ChunkContext
    pending: Float[Tensor, "batch held mels"]
    subsampling: SubsamplingState
    layers: tuple[LayerState, ...]
    frames: tuple[int, ...]  # encoder frames that are finished, by row: streams of a batch differ in age


def join_streams(states: Sequence[EncoderState]) -> EncoderState:
    """One batch of several streams that share a context and hold nothing pending."""
    if len(states) == 1:
        return states[0]
    longest = max(state.layers[0].attention.keys.shape[1] for state in states)
    layers = zip(*(state.layers for state in states), strict=True)
    return EncoderState(
        context=states[0].context,
        pending=torch.cat([state.pending for state in states]),
        subsampling=join_rows([state.subsampling for state in states]),
        layers=tuple(
            LayerState(
                join_rows([_extended(layer.attention, longest) for layer in rows]),
                torch.cat([layer.convolution for layer in rows]),
            )
            for rows in layers
        ),
        frames=tuple(frames for state in states for frames in state.frames),
    )


def split_streams(state: EncoderState) -> list[EncoderState]:
    """The streams of a batch, each as a batch of one; a left context without limit is cut to what a row has."""
    if len(state.frames) == 1:
        return [state]
    rows: list[list[LayerState]] = [[] for _ in state.frames]
    for layer in state.layers:
        parts = zip(split_rows(layer.attention), layer.convolution.clone().split(1), strict=True)
        for row, frames, (attention, convolution) in zip(rows, state.frames, parts, strict=True):
            row.append(LayerState(_limited(attention, state.context, frames), convolution))
    subsampling, pending = split_rows(state.subsampling), state.pending.split(1)
    return [
        EncoderState(state.context, pending[row], subsampling[row], tuple(rows[row]), (frames,))
        for row, frames in enumerate(state.frames)
    ]


def _extended(state: AttentionState, frames: int) -> AttentionState:
    """The state with storage for so many frames in front of its own."""
    missing = frames - state.keys.shape[1]
    if missing == 0:
        return state
    return AttentionState(*(pad(x, (0, 0, 0, 0, missing, 0)) for x in (state.keys, state.values)))


def _limited(state: AttentionState, context: ChunkContext, frames: int) -> AttentionState:
    """The state without the storage that a stream of so many frames does not need."""
    if context.left_frames is not None:
        return state
    surplus = max(0, state.keys.shape[1] - frames)
    return AttentionState(state.keys[:, surplus:], state.values[:, surplus:])
