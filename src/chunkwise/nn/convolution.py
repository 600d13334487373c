"""The Conformer's convolution module, whose look-ahead ends at the chunk's border."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import glu, pad, silu

from chunkwise.nn.depthwise import depthwise
from chunkwise.nn.layer_norm import LayerNorm
from chunkwise.nn.linear import Linear
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
        self.norm = LayerNorm(d_model)
        self.gate = Linear(d_model, 2 * d_model)
        self.depthwise = nn.Conv1d(d_model, d_model, kernel_size, groups=d_model)
        self.inner_norm = LayerNorm(d_model)
        self.project = Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def window(self, chunk_frames: int | None) -> Window:
        """The frames that an output may depend on, before and after its own."""
        return Window(self.past, self.past if chunk_frames is None else min(self.past, chunk_frames - 1))

    def forward(
        self, x: Float[Tensor, "batch frames d_model"], valid: Bool[Tensor, "batch frames"], chunk_frames: int | None
    ) -> Float[Tensor, "batch frames d_model"]:
        """The module over whole utterances; what `valid` excludes is never read."""
        return self.finish(self.mix(self.gated(x), valid, chunk_frames))

    def initial_state(self, batch: int) -> Float[Tensor, "batch past d_model"]:
        """Silence before the first frame."""
        return self.depthwise.weight.new_zeros(batch, self.past, self.depthwise.in_channels)

    def stream(
        self,
        x: Float[Tensor, "batch chunk d_model"],
        state: Float[Tensor, "batch past d_model"],
        valid: Bool[Tensor, "batch chunk"] | None = None,
    ) -> tuple[Float[Tensor, "batch chunk d_model"], Float[Tensor, "batch past d_model"]]:
        """One chunk; the state is the last `past` gated frames. A row's last chunk may be shorter: see `valid`."""
        mixed, state = self.mix_chunk(self.gated(x), state, valid)
        return self.finish(mixed), state

    def flush(
        self, state: Float[Tensor, "batch past d_model"]
    ) -> tuple[Float[Tensor, "batch 0 d_model"], Float[Tensor, "batch past d_model"]]:
        """Nothing: a chunk's outputs are complete with the chunk."""
        return state[:, :0], state

    def gated(self, x: Float[Tensor, "*axes d_model"]) -> Float[Tensor, "*axes d_model"]:
        """What the depthwise convolution reads, frame by frame."""
        return glu(self.gate(self.norm(x)), dim=-1)

    def mix(
        self,
        gated: Float[Tensor, "batch frames d_model"],
        valid: Bool[Tensor, "batch frames"],
        chunk_frames: int | None,
    ) -> Float[Tensor, "batch frames d_model"]:
        """The depthwise convolution over whole utterances, without its bias."""
        beyond = self.past if chunk_frames is None else 0
        extended = pad(gated, (0, 0, self.past, beyond))
        extended.masked_fill_(~pad(valid, (self.past, beyond), value=True)[:, :, None], 0.0)
        if chunk_frames is None:
            return depthwise(extended, self.depthwise.weight[:, 0])
        return self.ahead(self.behind(extended), extended[:, self.past :], chunk_frames)

    def mix_chunk(
        self,
        gated: Float[Tensor, "batch chunk d_model"],
        state: Float[Tensor, "batch past d_model"],
        valid: Bool[Tensor, "batch chunk"] | None,
    ) -> tuple[Float[Tensor, "batch chunk d_model"], Float[Tensor, "batch past d_model"]]:
        """`mix` over one chunk."""
        if valid is not None:
            gated = gated.masked_fill(~valid[:, :, None], 0.0)
        extended = torch.cat((state, gated, torch.zeros_like(state)), dim=1)  # nothing is seen beyond the chunk
        mixed = depthwise(extended, self.depthwise.weight[:, 0])
        return mixed, extended[:, gated.shape[1] : gated.shape[1] + self.past]

    def behind(self, extended: Float[Tensor, "batch extended d_model"]) -> Float[Tensor, "batch frames d_model"]:
        """The kernel's taps on the frame itself and the `past` frames before it."""
        return depthwise(extended, self.depthwise.weight[:, 0, : self.past + 1])

    def ahead(
        self,
        behind: Float[Tensor, "batch frames d_model"],
        gated: Float[Tensor, "batch frames d_model"],
        chunk_frames: int,
    ) -> Float[Tensor, "batch frames d_model"]:
        """Added to `behind`, the kernel's taps on the frames after, each chunk a row that zeros follow."""
        frames = gated.shape[1]
        reach = min(self.past, chunk_frames - 1)
        if reach == 0:
            return behind
        taps = self.depthwise.weight[:, 0, self.past + 1 : self.past + 1 + reach]
        chunks = pad(gated, (0, 0, 0, -frames % chunk_frames)).unflatten(1, (-1, chunk_frames))
        following = pad(chunks[:, :, 1:], (0, 0, 0, reach)).flatten(0, 1)
        mixed = depthwise(following, taps).reshape(len(gated), -1, gated.shape[2])
        return behind + mixed[:, :frames]

    def finish(self, mixed: Float[Tensor, "*axes d_model"]) -> Float[Tensor, "*axes d_model"]:
        """Bias, norm, SiLU, project, frame by frame."""
        bias = self.depthwise.bias
        assert bias is not None
        return self.dropout(self.project(silu(self.inner_norm(mixed + bias))))
