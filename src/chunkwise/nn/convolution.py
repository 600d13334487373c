"""The Conformer's convolution module, whose look-ahead ends at the chunk's border."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import conv1d, glu, pad, silu

from chunkwise.typing import Window


class ChunkConvolution(nn.Module):
    """Pre-normalised convolution module: gate, depthwise convolution, norm, SiLU, project.

    A frame sees the `past = (kernel_size - 1) / 2` frames before it and as many after it, but none
    beyond its own chunk. LayerNorm instead of BatchNorm, so that a frame does not depend on its batch.

    Reference: Gulati et al. 2020, "Conformer", arXiv:2005.08100; Li et al. 2023, "Dynamic Chunk
    Convolution for Unified Streaming and Non-Streaming Conformer ASR", arXiv:2304.09325.

    As a box of the streaming law it takes one chunk at a time and holds nothing back.
    """

    stride = 1

    def __init__(self, d_model: int, kernel_size: int, dropout: float) -> None:
        super().__init__()
        self.past = (kernel_size - 1) // 2
        self.norm = nn.LayerNorm(d_model)
        self.gate = nn.Linear(d_model, 2 * d_model)
        self.depthwise = nn.Conv1d(d_model, d_model, kernel_size, groups=d_model)
        self.inner_norm = nn.LayerNorm(d_model)
        self.project = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def window(self, chunk_frames: int | None) -> Window:
        """The frames that an output may depend on, before and after its own."""
        return Window(self.past, self.past if chunk_frames is None else min(self.past, chunk_frames - 1))

    def forward(
        self, x: Float[Tensor, "batch frames d_model"], valid: Bool[Tensor, "batch frames"], chunk_frames: int | None
    ) -> Float[Tensor, "batch frames d_model"]:
        """The module over whole utterances; what `valid` excludes is never read."""
        gated = self.gated(x).masked_fill(~valid[:, None], 0.0)
        if chunk_frames is None:
            return self.finish(conv1d(gated, *self.weights(), padding=self.past, groups=gated.shape[1]))
        behind = self.causal(pad(gated, (self.past, 0)))
        return self.finish(behind + self.ahead(gated, chunk_frames))

    def initial_state(self, batch: int) -> Float[Tensor, "batch d_model past"]:
        """Silence before the first frame."""
        return self.depthwise.weight.new_zeros(batch, self.depthwise.in_channels, self.past)

    def stream(
        self,
        x: Float[Tensor, "batch chunk d_model"],
        state: Float[Tensor, "batch d_model past"],
        valid: Bool[Tensor, "batch chunk"] | None = None,
    ) -> tuple[Float[Tensor, "batch chunk d_model"], Float[Tensor, "batch d_model past"]]:
        """One chunk; the state is the last `past` gated frames. A row's last chunk may be shorter: see `valid`."""
        gated = self.gated(x)
        if valid is not None:
            gated = gated.masked_fill(~valid[:, None], 0.0)
        extended = torch.cat((state, gated), dim=2)
        y = self.causal(extended) + self.ahead(gated, gated.shape[2])
        return self.finish(y), extended[:, :, extended.shape[2] - self.past :]

    def flush(
        self, state: Float[Tensor, "batch d_model past"]
    ) -> tuple[Float[Tensor, "batch 0 d_model"], Float[Tensor, "batch d_model past"]]:
        """Nothing: a chunk's outputs are complete with the chunk."""
        return state.transpose(1, 2)[:, :0], state

    def gated(self, x: Float[Tensor, "batch frames d_model"]) -> Float[Tensor, "batch d_model frames"]:
        """What the depthwise convolution reads."""
        return glu(self.gate(self.norm(x)), dim=2).transpose(1, 2)

    def weights(self) -> tuple[Tensor, Tensor | None]:
        """The depthwise kernel and its bias."""
        return self.depthwise.weight, self.depthwise.bias

    def causal(self, extended: Float[Tensor, "batch d_model extended"]) -> Float[Tensor, "batch d_model frames"]:
        """The kernel's taps on the frame itself and the `past` frames before it."""
        kernel, bias = self.weights()
        return conv1d(extended, kernel[:, :, : self.past + 1], bias, groups=extended.shape[1])

    def ahead(
        self, gated: Float[Tensor, "batch d_model frames"], chunk_frames: int
    ) -> Float[Tensor, "batch d_model frames"]:
        """The kernel's taps on the frames after, as one convolution over all chunks laid side by side."""
        batch, channels, frames = gated.shape
        reach = min(self.past, chunk_frames - 1)
        if reach == 0:
            return torch.zeros_like(gated)
        kernel, _ = self.weights()
        taps = kernel[:, :, self.past + 1 : self.past + 1 + reach]
        chunks = pad(gated, (0, -frames % chunk_frames)).unflatten(2, (-1, chunk_frames))
        chunks = pad(chunks[..., 1:], (0, reach)).transpose(1, 2).flatten(0, 1)  # zeros beyond the border
        mixed = conv1d(chunks, taps, groups=channels)
        return mixed.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2)[:, :, :frames]

    def finish(self, mixed: Float[Tensor, "batch d_model frames"]) -> Float[Tensor, "batch frames d_model"]:
        """Norm, SiLU, project."""
        return self.dropout(self.project(silu(self.inner_norm(mixed.transpose(1, 2)))))
