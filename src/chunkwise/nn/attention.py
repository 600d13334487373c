"""Multi-head self-attention with rotary or Transformer-XL relative positions, whole and in chunks."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from chunkwise.nn.blocks import Blocks
from chunkwise.nn.layer_norm import LayerNorm
from chunkwise.nn.linear import Linear
from chunkwise.typing import Window


@dataclass(frozen=True, slots=True)
class AttentionState:
    """The keys and values of the left context, the newest last; a view of one chunk says which of them are real."""

    keys: Float[Tensor, "batch left heads head_dim"]
    values: Float[Tensor, "batch left heads head_dim"]


@dataclass(frozen=True, slots=True)
class ChunkView:
    """What the frames of one chunk of a stream see; the same for all layers."""

    positions: Any  # from `embed_positions`
    left_frames: int | None  # how much of the past the next chunk sees; `None`: all
    visible: Bool[Tensor, "batch 1 1 keys"] | None = None  # the left context, then the chunk; `None`: everything
    cached: Bool[Tensor, "batch left 1 1"] | None = None  # which of the left context is real; `None`: all


def sinusoids(positions: Int[Tensor, "*axes"], dim: int) -> tuple[Tensor, Tensor]:
    """Sine and cosine of each position at `dim / 2` frequencies, each `[*axes, dim / 2]` in float64.

    float64, because the angle of frame 100,000 in float32 is off by a hundredth of a radian.
    """
    frequencies = 10_000.0 ** -(torch.arange(0, dim, 2, dtype=torch.float64, device=positions.device) / dim)
    angles = positions.to(torch.float64)[..., None] * frequencies
    return angles.sin(), angles.cos()


def rotate(
    x: Float[Tensor, "batch frames heads head_dim"], turns: Complex[Tensor, "*batch frames 1 half"]
) -> Float[Tensor, "batch frames heads head_dim"]:
    """Rotary position embedding: each pair of neighbours, as a complex number, turned by its angle.

    Reference: Su et al. 2021, "RoFormer", arXiv:2104.09864.
    """
    exact = x if x.dtype == torch.float64 else x.float()  # there is no complex number of half precision
    pairs = torch.view_as_complex(exact.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


class SelfAttention(nn.Module):
    """What both kinds share: projections, blocks of a whole utterance, and the key and value cache of a stream.

    As a box of the streaming law it takes one chunk at a time and holds nothing back.
    """

    stride = 1

    def __init__(self, d_model: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = d_model // num_heads
        self.dropout = dropout
        self.norm = LayerNorm(d_model)
        self.project_in = Linear(d_model, 3 * d_model)
        self.project_out = Linear(d_model, d_model)

    @staticmethod
    def window(chunk_frames: int | None, left_frames: int | None) -> Window:
        """The frames that an output may depend on, before and after its own."""
        if chunk_frames is None:
            return Window(None, None)
        left = None if left_frames is None else left_frames + chunk_frames - 1
        return Window(left, chunk_frames - 1)

    @abstractmethod
    def embed_positions(self, positions: Int[Tensor, "... queries"], num_queries: int, num_keys: int) -> Any:
        """What `attend` must know of where queries and keys stand; the same for all layers.

        `positions` are the queries' own; each block has `num_queries`, the last of which stands at the last key.
        """

    @abstractmethod
    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None, positions: Any
    ) -> Float[Tensor, "blocks query heads head_dim"]:
        """Softmax-weighted values; all are `[blocks, frames, heads, head_dim]`."""

    def place(
        self, x: Float[Tensor, "batch frames heads head_dim"], positions: Any
    ) -> Float[Tensor, "batch frames heads head_dim"]:
        """Put absolute positions into queries or keys, where the kind needs them."""
        return x

    def forward(
        self, x: Float[Tensor, "batch frames d_model"], blocks: Blocks, positions: Any
    ) -> Float[Tensor, "batch frames d_model"]:
        """Attention over whole utterances, block by block."""
        queries, keys, values = self.heads(x, positions)
        attended = self.attend(
            blocks.queries(queries), blocks.windows(keys), blocks.windows(values), blocks.visible, positions
        )
        return self.project_out(blocks.join(attended.flatten(2)))

    def initial_state(self, batch: int, left_frames: int | None = None) -> AttentionState:
        """No left context yet: storage for `left_frames`, or none where it grows with the stream."""
        empty = self.project_in.weight.new_zeros(batch, left_frames or 0, self.num_heads, self.head_dim)
        return AttentionState(empty, empty)

    def stream(
        self, x: Float[Tensor, "batch chunk d_model"], state: AttentionState, view: ChunkView
    ) -> tuple[Float[Tensor, "batch chunk d_model"], AttentionState]:
        """One chunk: it sees itself and what is real of the left context."""
        queries, keys, values = self.heads(x, view.positions)
        past = state if view.cached is None else _cleared(state, view.cached)
        keys, values = torch.cat((past.keys, keys), dim=1), torch.cat((past.values, values), dim=1)
        attended = self.attend(queries, keys, values, view.visible, view.positions)
        drop = 0 if view.left_frames is None else keys.shape[1] - view.left_frames
        return self.project_out(attended.flatten(2)), AttentionState(keys[:, drop:], values[:, drop:])

    def flush(self, state: AttentionState) -> tuple[Float[Tensor, "batch 0 d_model"], AttentionState]:
        """Nothing: a chunk's outputs are complete with the chunk."""
        return state.keys.flatten(2)[:, :0], state

    def heads(self, x: Float[Tensor, "batch frames d_model"], positions: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each `[batch, frames, heads, head_dim]`."""
        projected = self.project_in(self.norm(x)).unflatten(2, (3, self.num_heads, self.head_dim))
        queries, keys, values = projected.unbind(2)
        return self.place(queries, positions), self.place(keys, positions), values


def _cleared(state: AttentionState, real: Bool[Tensor, "batch left 1 1"]) -> AttentionState:
    """The state without what storage may hold by chance: zero weights would let NaN through."""
    return AttentionState(state.keys.masked_fill(~real, 0.0), state.values.masked_fill(~real, 0.0))


class RotaryAttention(SelfAttention):
    """Self-attention with rotary positions, through torch's fused kernel."""

    def embed_positions(
        self, positions: Int[Tensor, "... queries"], num_queries: int, num_keys: int
    ) -> Complex[Tensor, "... queries 1 half"]:
        """The angles of the queries' positions as complex numbers; keys at the same positions share them."""
        sin, cos = sinusoids(positions, self.head_dim)
        turns = torch.complex(cos, sin)[..., None, :]
        return turns if self.project_in.weight.dtype == torch.float64 else turns.to(torch.complex64)

    def place(
        self, x: Float[Tensor, "batch frames heads head_dim"], positions: Tensor
    ) -> Float[Tensor, "batch frames heads head_dim"]:
        """Rotate queries or keys by their absolute position; their products know only the distance."""
        return rotate(x, positions)

    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None, positions: Any
    ) -> Float[Tensor, "blocks query heads head_dim"]:
        """Softmax-weighted values."""
        dropout = self.dropout if self.training else 0.0
        heads = (x.transpose(1, 2) for x in (queries, keys, values))
        return scaled_dot_product_attention(*heads, attn_mask=visible, dropout_p=dropout).transpose(1, 2)


class RelativeAttention(SelfAttention):
    """Self-attention with Transformer-XL relative positions.

    score[i, j] = ((q_i + u) k_j + (q_i + v) W r_{i-j}) / sqrt(head_dim), with sinusoids r and learned u, v, W.

    Reference: Dai et al. 2019, "Transformer-XL", arXiv:1901.02860, section 3.3.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float) -> None:
        super().__init__(d_model, num_heads, dropout)
        self.project_distance = Linear(d_model, d_model, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, 1, self.head_dim))
        self.distance_bias = nn.Parameter(torch.zeros(num_heads, 1, self.head_dim))

    def embed_positions(
        self, positions: Int[Tensor, "... queries"], num_queries: int, num_keys: int
    ) -> Float[Tensor, "distances d_model"]:
        """Sinusoids of all distances, from the last query's farthest past key to the first query's farthest future."""
        distances = torch.arange(num_keys - 1, -num_queries, -1, device=positions.device)
        table = torch.cat(sinusoids(distances, self.num_heads * self.head_dim), dim=1)
        return table.to(self.project_in.weight.dtype)

    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None, positions: Tensor
    ) -> Float[Tensor, "blocks query heads head_dim"]:
        """Softmax-weighted values; the distance term is handed to torch's kernel as an additive mask."""
        queries, keys, values = (x.transpose(1, 2) for x in (queries, keys, values))
        bias = self.distance_scores(queries, positions).to(queries.dtype)
        if visible is not None:
            bias = bias.masked_fill(~visible, -math.inf)
        dropout = self.dropout if self.training else 0.0
        attended = scaled_dot_product_attention(
            queries + self.content_bias, keys, values, attn_mask=bias, dropout_p=dropout
        )
        return attended.transpose(1, 2)

    def distance_scores(
        self, queries: Float[Tensor, "blocks heads query head_dim"], table: Float[Tensor, "distances d_model"]
    ) -> Float[Tensor, "blocks heads query key"]:
        """The scaled distance term of every query and key."""
        queries = (queries + self.distance_bias) * self.head_dim**-0.5  # scaled before the product: fp16's range
        embedded = self.project_distance(table).unflatten(1, (self.num_heads, self.head_dim)).transpose(0, 1)
        return shift(queries @ embedded.transpose(1, 2))


def shift(scores: Float[Tensor, "*axes query distances"]) -> Float[Tensor, "*axes query key"]:
    """From scores by distance to scores by key: `shifted[i, j] = scores[i, j + queries - 1 - i]`.

    Rows of `distances` numbers read as rows of one fewer start one place later each; no number is copied.

    >>> shift(torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7]]).float()).tolist()
    [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    """
    queries, distances = scores.shape[-2:]
    if queries == 1:
        return scores
    flat = scores.flatten(-2)[..., queries - 1 : queries - 1 + queries * (distances - 1)]
    return flat.unflatten(-1, (queries, distances - 1))[..., : distances - queries + 1]
