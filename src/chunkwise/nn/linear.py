"""A linear layer that keeps its weights as the CPU's products want them, for streams of few frames at a time."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import silu

PACKS = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
"""Whether torch was built with oneDNN, whose layout of weights it is."""

FRAMES = 16
"""For how many rows at a time the layout is chosen: a stream's chunk."""


class Packed(NamedTuple):
    """A weight and its blocks; as long as it is held, no other weight has its address."""

    weight: Tensor
    version: int
    blocks: Tensor


class Linear(nn.Linear):
    """`nn.Linear`, on the CPU without gradients through weights that are brought into oneDNN's blocks once.

    A product brings its weights into blocks anyway. For a chunk of 16 frames that costs as much as the product.

    >>> layer = Linear(3, 2)
    >>> x = torch.ones(1, 3)
    >>> with torch.inference_mode():
    ...     torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))
    ...     torch.testing.assert_close(layer.with_silu(x), silu(layer(x)))
    """

    _packed: Packed | None = None

    def forward(self, input: Float[Tensor, "*axes inputs"]) -> Float[Tensor, "*axes outputs"]:
        """The product, with the bias."""
        return self._packed_product(input, "none") if self._may_pack(input) else super().forward(input)

    def with_silu(self, input: Float[Tensor, "*axes inputs"]) -> Float[Tensor, "*axes outputs"]:
        """SiLU of the product, in the same pass where weights are packed."""
        return self._packed_product(input, "swish") if self._may_pack(input) else silu(self(input))

    def _may_pack(self, input: Tensor) -> bool:
        return (
            PACKS
            and not torch.is_grad_enabled()
            and not torch.compiler.is_compiling()
            and not torch.is_autocast_enabled("cpu")
            and input.device.type == "cpu"
            and input.dtype == self.weight.dtype == torch.float32
            and input.numel() > 0
            and not self.weight.is_inference()  # such a tensor does not count its changes
        )

    def _packed_product(self, input: Tensor, activation: str) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(input, self._blocks(), self.bias, activation, [], "")

    def _blocks(self) -> Tensor:
        weight, version = self.weight.detach(), self.weight._version
        if (
            self._packed is None
            or self._packed.version != version
            or self._packed.weight.data_ptr() != weight.data_ptr()
        ):
            self._packed = Packed(weight, version, torch.ops.mkldnn._reorder_linear_weight(weight, FRAMES))
        return self._packed.blocks

    def __getstate__(self) -> dict[str, Any]:
        """All but the blocks, which can be neither pickled nor copied."""
        return {name: value for name, value in super().__getstate__().items() if name != "_packed"}
