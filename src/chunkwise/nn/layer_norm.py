"""Layer normalisation in its parameters' precision, whatever the frames' own."""

from jaxtyping import Float
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """`nn.LayerNorm` as autocast runs it on CUDA, on every device: half-precision frames come out in float32.

    On the CPU torch sums the gradients of half-precision frames in half precision, where a sum of ones ends at 2048
    in fp16 and at 256 in bf16.

    >>> import torch
    >>> LayerNorm(2)(torch.ones(1, 2, dtype=torch.float16)).dtype
    torch.float32
    """

    def forward(self, input: Float[Tensor, "*axes channels"]) -> Float[Tensor, "*axes channels"]:
        """The normalised frames."""
        return super().forward(input.to(self.weight.dtype))
