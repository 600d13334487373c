"""Multi-head self-attention with rotary or Transformer-XL relative positions, whole and in chunks."""

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


@dataclass(frozen=True, slots=True)
class AttentionState:
    """The keys and values of the left context, and how many frames came before the next piece."""

    keys: Float[Tensor, "batch heads left head_dim"]
    values: Float[Tensor, "batch heads left head_dim"]
    position: int


def sinusoids(positions: Int[Tensor, " positions"], dim: int) -> tuple[Tensor, Tensor]:
    """Sine and cosine of each position at `dim / 2` frequencies, each `[positions, dim / 2]` in float64.

    float64, because the angle of frame 100,000 in float32 is off by a hundredth of a radian.
    """
    frequencies = 10_000.0 ** -(torch.arange(0, dim, 2, dtype=torch.float64, device=positions.device) / dim)
    angles = positions.to(torch.float64)[:, None] * frequencies
    return angles.sin(), angles.cos()


def rotate(x: Float[Tensor, "batch heads frames head_dim"], first: int) -> Float[Tensor, "batch heads frames head_dim"]:
    """Rotary position embedding of frames `first, first + 1, ...`.

    Reference: Su et al. 2021, "RoFormer", arXiv:2104.09864.
    """
    positions = torch.arange(first, first + x.shape[2], device=x.device)
    sin, cos = (table.to(x.dtype) for table in sinusoids(positions, x.shape[3]))
    one, two = x.chunk(2, dim=-1)
    return torch.cat((one * cos - two * sin, one * sin + two * cos), dim=-1)


class SelfAttention(nn.Module):
    """What both kinds share: projections, and the key and value cache of a stream."""

    def __init__(self, d_model: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = d_model // num_heads
        self.dropout = dropout
        self.norm = nn.LayerNorm(d_model)
        self.project_in = nn.Linear(d_model, 3 * d_model)
        self.project_out = nn.Linear(d_model, d_model)

    @abstractmethod
    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None
    ) -> Float[Tensor, "batch heads query head_dim"]:
        """Softmax-weighted values; `keys` end at the same frame as `queries`."""

    def place(
        self, x: Float[Tensor, "batch heads frames head_dim"], first: int
    ) -> Float[Tensor, "batch heads frames head_dim"]:
        """Put absolute positions into queries and keys, where the kind needs them."""
        return x

    def forward(
        self, x: Float[Tensor, "batch frames d_model"], visible: Bool[Tensor, "batch 1 frames frames"] | None
    ) -> Float[Tensor, "batch frames d_model"]:
        """Attention over a whole utterance; `visible` is True where a query (row) may see a key."""
        queries, keys, values = self.heads(x, 0)
        return self.merge(self.attend(queries, keys, values, visible))

    def initial_state(self, batch: int) -> AttentionState:
        """An empty left context."""
        weight = self.project_in.weight
        empty = weight.new_zeros(batch, self.num_heads, 0, self.head_dim)
        return AttentionState(empty, empty, 0)

    def stream(
        self, x: Float[Tensor, "batch chunk d_model"], state: AttentionState, left_frames: int | None
    ) -> tuple[Float[Tensor, "batch chunk d_model"], AttentionState]:
        """One chunk: it sees itself and the kept left context, of which `left_frames` frames stay (`None`: all)."""
        queries, keys, values = self.heads(x, state.position)
        keys, values = torch.cat((state.keys, keys), dim=2), torch.cat((state.values, values), dim=2)
        y = self.merge(self.attend(queries, keys, values, None))
        drop = 0 if left_frames is None else max(0, keys.shape[2] - left_frames)
        return y, AttentionState(keys[:, :, drop:], values[:, :, drop:], state.position + x.shape[1])

    def heads(self, x: Float[Tensor, "batch frames d_model"], first: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each `[batch, heads, frames, head_dim]`."""
        projected = self.project_in(self.norm(x)).unflatten(2, (3, self.num_heads, self.head_dim))
        queries, keys, values = projected.permute(2, 0, 3, 1, 4)
        return self.place(queries, first), self.place(keys, first), values

    def merge(self, attended: Float[Tensor, "batch heads frames head_dim"]) -> Float[Tensor, "batch frames d_model"]:
        """Join the heads and project."""
        return self.project_out(attended.transpose(1, 2).flatten(2))


class RotaryAttention(SelfAttention):
    """Self-attention with rotary positions, through torch's fused kernel."""

    def place(
        self, x: Float[Tensor, "batch heads frames head_dim"], first: int
    ) -> Float[Tensor, "batch heads frames head_dim"]:
        """Rotate queries and keys by their absolute position; their products know only the distance."""
        return rotate(x, first)

    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None
    ) -> Float[Tensor, "batch heads query head_dim"]:
        """Softmax-weighted values."""
        dropout = self.dropout if self.training else 0.0
        return scaled_dot_product_attention(queries, keys, values, attn_mask=visible, dropout_p=dropout)


class RelativeAttention(SelfAttention):
    """Self-attention with Transformer-XL relative positions.

    score[i, j] = ((q_i + u) k_j + (q_i + v) W r_{i-j}) / sqrt(head_dim), with sinusoids r and learned u, v, W.

    Reference: Dai et al. 2019, "Transformer-XL", arXiv:1901.02860, section 3.3.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float) -> None:
        super().__init__(d_model, num_heads, dropout)
        self.project_distance = nn.Linear(d_model, d_model, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, 1, self.head_dim))
        self.distance_bias = nn.Parameter(torch.zeros(num_heads, 1, self.head_dim))

    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None
    ) -> Float[Tensor, "batch heads query head_dim"]:
        """Softmax-weighted values; the distance term is handed to torch's kernel as an additive mask."""
        bias = self.distance_scores(queries, keys.shape[2]).to(queries.dtype)
        if visible is not None:
            bias = bias.masked_fill(~visible, -math.inf)
        dropout = self.dropout if self.training else 0.0
        return scaled_dot_product_attention(
            queries + self.content_bias, keys, values, attn_mask=bias, dropout_p=dropout
        )

    def distance_scores(
        self, queries: Float[Tensor, "batch heads query head_dim"], num_keys: int
    ) -> Float[Tensor, "batch heads query key"]:
        """The scaled distance term of every query and key; the last query stands at the last key."""
        num_queries = queries.shape[2]
        queries = (queries + self.distance_bias) * self.head_dim**-0.5  # scaled before the product: fp16's range
        # distances from the farthest past key of the last query down to the farthest future key of the first
        distances = torch.arange(num_keys - 1, -num_queries, -1, device=queries.device)
        table = torch.cat(sinusoids(distances, self.num_heads * self.head_dim), dim=1).to(queries.dtype)
        embedded = self.project_distance(table).unflatten(1, (self.num_heads, self.head_dim)).transpose(0, 1)
        scores = queries @ embedded.transpose(1, 2)  # [batch, heads, query, distance]
        query = torch.arange(num_queries, device=queries.device)[:, None]
        column = torch.arange(num_keys, device=queries.device) + (num_queries - 1 - query)
        return scores.gather(3, column.expand(*scores.shape[:2], -1, -1))
