"""The Conformer encoder: full context and chunks from the same weights, whole utterances and streams."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from chunkwise.models.context import ChunkContext
from chunkwise.models.encoder_state import EncoderState, LayerState
from chunkwise.nn.attention import ChunkView, RelativeAttention, RotaryAttention
from chunkwise.nn.blocks import Blocks, cut_into_blocks
from chunkwise.nn.convolution import ChunkConvolution
from chunkwise.nn.feed_forward import FeedForward
from chunkwise.nn.layer_norm import LayerNorm
from chunkwise.nn.masks import valid_frames
from chunkwise.nn.subsampling import Subsampling
from chunkwise.typing import Window


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
        self.norm = LayerNorm(config.d_model)

    def forward(
        self,
        x: Float[Tensor, "batch frames d_model"],
        blocks: Blocks,
        positions: Any,
        valid: Bool[Tensor, "batch frames"],
        chunk_frames: int | None,
    ) -> Float[Tensor, "batch frames d_model"]:
        """The layer over whole utterances."""
        x = self.before_attention(x)
        x, gated = self.before_mixing(x, self.attention(x, blocks, positions))
        return self.after_mixing(x, self.convolution.mix(gated, valid, chunk_frames))

    def before_attention(self, x: Float[Tensor, "*axes d_model"]) -> Float[Tensor, "*axes d_model"]:
        """Frame by frame: what attention reads."""
        return x.add(self.feed_forward_in(x), alpha=0.5)

    def before_mixing(
        self, x: Float[Tensor, "*axes d_model"], attended: Float[Tensor, "*axes d_model"]
    ) -> tuple[Float[Tensor, "*axes d_model"], Float[Tensor, "*axes d_model"]]:
        """Frame by frame: the frames after attention, and what the depthwise convolution reads of them."""
        x = x + self.dropout(attended)
        return x, self.convolution.gated(x)

    def after_mixing(
        self, x: Float[Tensor, "*axes d_model"], mixed: Float[Tensor, "*axes d_model"]
    ) -> Float[Tensor, "*axes d_model"]:
        """Frame by frame: the layer's end, from what the depthwise convolution gives."""
        x = x + self.convolution.finish(mixed)
        return self.norm(x.add(self.feed_forward_out(x), alpha=0.5))

    def initial_state(self, batch: int, left_frames: int | None) -> LayerState:
        """The state before the first chunk."""
        return LayerState(self.attention.initial_state(batch, left_frames), self.convolution.initial_state(batch))

    def stream(
        self,
        x: Float[Tensor, "batch chunk d_model"],
        state: LayerState,
        view: ChunkView,
        valid: Bool[Tensor, "batch chunk"] | None,
    ) -> tuple[Float[Tensor, "batch chunk d_model"], LayerState]:
        """The layer over one chunk."""
        x = self.before_attention(x)
        attended, attention = self.attention.stream(x, state.attention, view)
        x, gated = self.before_mixing(x, attended)
        mixed, convolution = self.convolution.mix_chunk(gated, state.convolution, valid)
        return self.after_mixing(x, mixed), LayerState(attention, convolution)


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

    def window(self, context: ChunkContext) -> Window:
        """The feature frames that an encoder frame may depend on, before and after its own block of `stride`."""
        if context.chunk_frames is None:
            return Window(None, None)
        right = (context.chunk_frames - 1) * self.stride
        if context.left_frames is None:
            return Window(None, right)
        reaches = [
            frame - self._earliest(frame, context.chunk_frames, context.left_frames)
            for frame in range(context.chunk_frames)
        ]
        return Window(max(reaches) * self.stride + Subsampling.left, right)

    def _earliest(self, frame: int, chunk_frames: int, left_frames: int) -> int:
        """The first encoder frame that `frame` depends on, as if the stream had no beginning."""
        for layer in reversed(self._layers()):
            frame -= layer.convolution.past
            frame = frame // chunk_frames * chunk_frames - left_frames
        return frame

    def forward(
        self, features: Float[Tensor, "batch frames mels"], lengths: Int[Tensor, " batch"], context: ChunkContext
    ) -> tuple[Float[Tensor, "batch encoder_frames d_model"], Int[Tensor, " batch"]]:
        """Encoder frames of whole utterances, zeros past each one's length, and how many each has."""
        x, lengths = self.subsampling(features, lengths)
        return self.contextualise(x, lengths, context)

    def contextualise(
        self,
        x: Float[Tensor, "batch encoder_frames d_model"],
        lengths: Int[Tensor, " batch"],
        context: ChunkContext,
    ) -> tuple[Float[Tensor, "batch encoder_frames d_model"], Int[Tensor, " batch"]]:
        """`forward` from the subsampled frames on: the layers alone."""
        valid = valid_frames(lengths, x.shape[1])
        blocks = cut_into_blocks(valid, context.chunk_frames, context.left_chunks)
        places = torch.arange(x.shape[1], device=x.device)
        positions = self._layers()[0].attention.embed_positions(places, blocks.size, blocks.window)
        x = self.dropout(x.masked_fill(~valid[:, :, None], 0.0))
        for layer in self.layers:
            x = layer(x, blocks, positions, valid, context.chunk_frames)
        return x.masked_fill(~valid[:, :, None], 0.0), lengths

    def initial_state(self, batch: int, context: ChunkContext) -> EncoderState:
        """The state before the first piece; full context holds everything back until `flush`."""
        pending = self.subsampling.project.weight.new_zeros(batch, 0, self.subsampling.num_mels)
        layers = tuple(layer.initial_state(batch, context.left_frames) for layer in self._layers())
        return EncoderState(context, pending, self.subsampling.initial_state(batch), layers, (0,) * batch)

    def stream(
        self, features: Float[Tensor, "batch frames mels"], state: EncoderState
    ) -> tuple[Float[Tensor, "batch encoder_frames d_model"], EncoderState]:
        """The encoder frames of the chunks that these feature frames complete."""
        pending = torch.cat((state.pending, features), dim=1)
        size = self.chunk_features(state.context)
        encoded = [pending.new_zeros(len(pending), 0, self.d_model)]
        while size is not None and pending.shape[1] >= size:
            chunk, state = self.stream_chunk(pending[:, :size], None, state)
            pending = pending[:, size:]
            encoded.append(chunk)
        return torch.cat(encoded, dim=1), replace(state, pending=pending)

    def flush(self, state: EncoderState) -> tuple[Float[Tensor, "batch encoder_frames d_model"], EncoderState]:
        """The encoder frames of the last, incomplete chunk."""
        batch, frames, _ = state.pending.shape
        if frames == 0:
            return state.pending.new_zeros(batch, 0, self.d_model), state
        return self.stream_chunk(state.pending, [frames] * batch, replace(state, pending=state.pending[:, :0]))

    def chunk_features(self, context: ChunkContext) -> int | None:
        """How many feature frames make a chunk; `None`: all that come."""
        return None if context.chunk_frames is None else context.chunk_frames * self.stride

    def stream_chunk(
        self, features: Float[Tensor, "batch frames mels"], lengths: Sequence[int] | None, state: EncoderState
    ) -> tuple[Float[Tensor, "batch encoder_frames d_model"], EncoderState]:
        """Each row's next chunk; `lengths` (`None`: all of `features`) may be shorter in a row's last one."""
        valid = None
        if lengths is not None:
            features = pad(features, (0, 0, 0, -features.shape[1] % self.stride))
            known = torch.tensor(lengths, device=features.device)
            valid = valid_frames(self.output_lengths(known), features.shape[1] // self.stride)
            x, subsampling = self.subsampling.stream(features, state.subsampling, known)
        else:
            x, subsampling = self.subsampling.stream(features, state.subsampling)
        encoded, state = self.contextualise_chunk(x, valid, state)
        return encoded, replace(state, subsampling=subsampling)

    def contextualise_chunk(
        self, x: Float[Tensor, "batch chunk d_model"], valid: Bool[Tensor, "batch chunk"] | None, state: EncoderState
    ) -> tuple[Float[Tensor, "batch chunk d_model"], EncoderState]:
        """`stream_chunk` from the subsampled frames on: the layers alone."""
        view, layers = self._view(state, x.shape[1], valid), []
        for layer, carried in zip(self._layers(), state.layers, strict=True):
            x, carried = layer.stream(x, carried, view, valid)
            layers.append(carried)
        frames = tuple(frames + x.shape[1] for frames in state.frames)
        return x, replace(state, layers=tuple(layers), frames=frames)

    def _view(self, state: EncoderState, chunk: int, valid: Bool[Tensor, "batch chunk"] | None) -> ChunkView:
        """What the rows' next frames see, by how much each row has heard."""
        device, keys = state.pending.device, state.layers[0].attention.keys
        ages = state.frames[:1] if len(set(state.frames)) == 1 else state.frames
        places = torch.tensor(ages, device=device)[:, None] + torch.arange(chunk, device=device)
        stored = keys.shape[1]
        positions = self._layers()[0].attention.embed_positions(places, chunk, stored + chunk)
        cached = visible = None
        if min(state.frames) < stored:
            cached = torch.arange(stored, device=device) >= stored - torch.tensor(state.frames, device=device)[:, None]
        if cached is not None or valid is not None:
            everything = torch.ones(len(keys), 1, dtype=torch.bool, device=device)
            past = everything.expand(-1, stored) if cached is None else cached
            now = everything.expand(-1, chunk) if valid is None else valid
            visible = torch.cat((past, now), dim=1)[:, None, None]
        return ChunkView(
            positions, state.context.left_frames, visible, None if cached is None else cached[:, :, None, None]
        )

    def _layers(self) -> list[ConformerLayer]:
        return cast(list[ConformerLayer], list(self.layers))
