"""The Conformer encoder: full context and chunks from the same weights, whole utterances and streams."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from chunkwise.models.context import ChunkContext
from chunkwise.nn.attention import AttentionState, RelativeAttention, RotaryAttention
from chunkwise.nn.convolution import ChunkConvolution
from chunkwise.nn.feed_forward import FeedForward
from chunkwise.nn.masks import attention_mask, valid_frames
from chunkwise.nn.subsampling import Subsampling, SubsamplingState


class AttentionKind(StrEnum):
    """How attention knows distances."""

    rotary = "rotary"
    relative = "relative"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """The Conformer encoder's shape."""

    d_model: int = 256
    num_layers: int = 12
    num_heads: int = 4
    feed_forward_dim: int = 1024
    kernel_size: int = 31  # depthwise convolution, odd
    subsampling_channels: int = 64
    attention: AttentionKind = AttentionKind.rotary
    dropout: float = 0.1

    def __post_init__(self) -> None:
        for name in ("d_model", "num_layers", "num_heads", "feed_forward_dim", "kernel_size", "subsampling_channels"):
            if getattr(self, name) < 1:
                raise ValueError(f"encoder.{name}={getattr(self, name)} must be 1 or more")
        if self.d_model % (2 * self.num_heads):
            fits = [heads for heads in range(1, self.d_model + 1) if self.d_model % (2 * heads) == 0]
            close = sorted(sorted(fits, key=lambda heads: abs(heads - self.num_heads))[:2])
            raise ValueError(
                f"encoder.num_heads={self.num_heads} must divide encoder.d_model={self.d_model} into even head sizes; "
                f"try {' or '.join(map(str, close)) or 'an even encoder.d_model'}"
            )
        if self.kernel_size % 2 == 0:
            raise ValueError(
                f"encoder.kernel_size={self.kernel_size} must be odd; "
                f"try {self.kernel_size - 1} or {self.kernel_size + 1}"
            )
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"encoder.dropout={self.dropout} must lie in [0, 1)")


@dataclass(frozen=True, slots=True)
class LayerState:
    """What one layer carries from chunk to chunk."""

    attention: AttentionState
    convolution: Float[Tensor, "batch d_model past"]


@dataclass(frozen=True, slots=True)
class EncoderState:
    """What the encoder carries from piece to piece; `pending` is the chunk that is not full yet."""

    context: ChunkContext
    subsampling: SubsamplingState
    pending: Float[Tensor, "batch held d_model"]
    layers: tuple[LayerState, ...]


class ConformerLayer(nn.Module):
    """One Conformer layer: half a feed-forward, attention, convolution, half a feed-forward, norm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        attention = RelativeAttention if config.attention is AttentionKind.relative else RotaryAttention
        self.feed_forward_in = FeedForward(config.d_model, config.feed_forward_dim, config.dropout)
        self.attention = attention(config.d_model, config.num_heads, config.dropout)
        self.convolution = ChunkConvolution(config.d_model, config.kernel_size, config.dropout)
        self.feed_forward_out = FeedForward(config.d_model, config.feed_forward_dim, config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.norm = nn.LayerNorm(config.d_model)

    def forward(
        self,
        x: Float[Tensor, "batch frames d_model"],
        visible: Bool[Tensor, "batch 1 frames frames"],
        valid: Bool[Tensor, "batch frames"],
        chunk_frames: int | None,
    ) -> Float[Tensor, "batch frames d_model"]:
        """The layer over whole utterances."""
        x = x + 0.5 * self.feed_forward_in(x)
        x = x + self.dropout(self.attention(x, visible))
        x = x + self.convolution(x, valid, chunk_frames)
        return self.norm(x + 0.5 * self.feed_forward_out(x))

    def initial_state(self, batch: int) -> LayerState:
        """The state before the first chunk."""
        return LayerState(self.attention.initial_state(batch), self.convolution.initial_state(batch))

    def stream(
        self, x: Float[Tensor, "batch chunk d_model"], state: LayerState, left_frames: int | None
    ) -> tuple[Float[Tensor, "batch chunk d_model"], LayerState]:
        """The layer over one chunk."""
        x = x + 0.5 * self.feed_forward_in(x)
        attended, attention = self.attention.stream(x, state.attention, left_frames)
        x = x + attended
        convolved, convolution = self.convolution.stream(x, state.convolution)
        x = x + convolved
        return self.norm(x + 0.5 * self.feed_forward_out(x)), LayerState(attention, convolution)


class ConformerEncoder(nn.Module):
    """Normalised features to encoder frames, under any `ChunkContext`.

    Reference: Gulati et al. 2020, "Conformer: Convolution-augmented Transformer for Speech Recognition",
    arXiv:2005.08100.
    """

    stride = Subsampling.stride

    def __init__(self, config: EncoderConfig, num_mels: int) -> None:
        super().__init__()
        self.d_model = config.d_model
        self.subsampling = Subsampling(num_mels, config.subsampling_channels, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(ConformerLayer(config) for _ in range(config.num_layers))

    def output_lengths(self, lengths: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """How many encoder frames so many feature frames give."""
        return Subsampling.output_lengths(lengths)

    def forward(
        self, features: Float[Tensor, "batch frames mels"], lengths: Int[Tensor, " batch"], context: ChunkContext
    ) -> tuple[Float[Tensor, "batch encoder_frames d_model"], Int[Tensor, " batch"]]:
        """Encoder frames of whole utterances, zeros past each one's length, and how many each has."""
        x, lengths = self.subsampling(features, lengths)
        valid = valid_frames(lengths, x.shape[1])
        visible = attention_mask(valid, context.chunk_frames, context.left_chunks)
        x = self.dropout(x.masked_fill(~valid[:, :, None], 0.0))
        for layer in self.layers:
            x = layer(x, visible, valid, context.chunk_frames)
        return x.masked_fill(~valid[:, :, None], 0.0), lengths

    def initial_state(self, batch: int, context: ChunkContext) -> EncoderState:
        """The state before the first piece; full context holds everything back until `flush`."""
        pending = self.subsampling.project.weight.new_zeros(batch, 0, self.d_model)
        layers = tuple(layer.initial_state(batch) for layer in self._layers())
        return EncoderState(context, self.subsampling.initial_state(batch), pending, layers)

    def stream(
        self, features: Float[Tensor, "batch frames mels"], state: EncoderState
    ) -> tuple[Float[Tensor, "batch encoder_frames d_model"], EncoderState]:
        """The encoder frames of the chunks that these feature frames complete."""
        x, subsampling = self.subsampling.stream(features, state.subsampling)
        pending = torch.cat((state.pending, x), dim=1)
        encoded, state = self._run_chunks(replace(state, subsampling=subsampling, pending=pending))
        return encoded, state

    def flush(self, state: EncoderState) -> tuple[Float[Tensor, "batch encoder_frames d_model"], EncoderState]:
        """The encoder frames of the last, incomplete chunk."""
        x, subsampling = self.subsampling.flush(state.subsampling)
        pending = torch.cat((state.pending, x), dim=1)
        encoded, state = self._run_chunks(replace(state, subsampling=subsampling, pending=pending))
        if state.pending.shape[1] == 0:
            return encoded, state
        last, state = self._run_chunk(state, state.pending.shape[1])
        return torch.cat((encoded, last), dim=1), state

    def _layers(self) -> list[ConformerLayer]:
        return cast(list[ConformerLayer], list(self.layers))

    def _run_chunks(self, state: EncoderState) -> tuple[Tensor, EncoderState]:
        """Run every full chunk that is pending."""
        encoded = [state.pending[:, :0]]
        chunk_frames = state.context.chunk_frames
        while chunk_frames is not None and state.pending.shape[1] >= chunk_frames:
            piece, state = self._run_chunk(state, chunk_frames)
            encoded.append(piece)
        return torch.cat(encoded, dim=1), state

    def _run_chunk(self, state: EncoderState, frames: int) -> tuple[Tensor, EncoderState]:
        """Run the first `frames` pending frames as one chunk."""
        x = state.pending[:, :frames]
        layers = []
        for layer, carried in zip(self._layers(), state.layers, strict=True):
            x, carried = layer.stream(x, carried, state.context.left_frames)
            layers.append(carried)
        return x, replace(state, pending=state.pending[:, frames:], layers=tuple(layers))
