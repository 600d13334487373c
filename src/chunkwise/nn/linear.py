"""A linear layer that can keep its weights as the CPU's products want them, for streams of few frames at a time."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import silu

PACKS = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
"""Whether torch was built with oneDNN, whose layout of weights it is."""

FRAMES = 16
"""For how many rows at a time the layout is chosen: a stream's chunk."""


class Linear(nn.Linear):
    """`nn.Linear`, whose weights `pack_weights` brings into oneDNN's blocks once, for products without gradient.

    A product on the CPU brings its weights into blocks anyway. For 16 frames that takes as long as the product itself.
    Blocks do not follow their weights, and not every optimizer tells that it changed them: so nothing is packed unless
    it is asked for, and the first product with a gradient, training mode, or loaded weights end it.

    >>> layer = Linear(3, 2)
    >>> pack_weights(layer)
    >>> x = torch.ones(1, 3)
    >>> with torch.inference_mode():
    ...     torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))
    ...     torch.testing.assert_close(layer.with_silu(x), silu(layer(x)))
    """

    blocks: Tensor | None = None  # the weights in oneDNN's layout, while they are packed

    def forward(self, input: Float[Tensor, "*axes inputs"]) -> Float[Tensor, "*axes outputs"]:
        """The product, with the bias."""
        blocks = self._blocks_for(input)
        return super().forward(input) if blocks is None else self._packed_product(input, blocks, "none")

    def with_silu(self, input: Float[Tensor, "*axes inputs"]) -> Float[Tensor, "*axes outputs"]:
        """SiLU of the product, in the same pass where weights are packed."""
        blocks = self._blocks_for(input)
        return silu(self(input)) if blocks is None else self._packed_product(input, blocks, "swish")

    def pack(self) -> None:
        """Keep the weights in blocks too, where there is a layout for them."""
        if PACKS and self.weight.device.type == "cpu" and self.weight.dtype == torch.float32:
            self.blocks = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), FRAMES)

    def train(self, mode: bool = True) -> "Linear":
        """Training mode, in which weights change."""
        if mode:
            self.blocks = None
        return super().train(mode)

    def _blocks_for(self, input: Tensor) -> Tensor | None:
        if torch.is_grad_enabled():
            self.blocks = None
        fits = input.dtype == torch.float32 and input.numel() > 0 and not torch.is_autocast_enabled("cpu")
        return self.blocks if fits else None

    def _packed_product(self, input: Tensor, blocks: Tensor, activation: str) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(input, blocks, self.bias, activation, [], "")

    def _apply(self, fn: Any, recurse: bool = True) -> "Linear":
        self.blocks = None  # another device or precision
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.blocks = None
        super()._load_from_state_dict(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        """All but the blocks, which can be neither pickled nor copied."""
        return {**super().__getstate__(), "blocks": None}


def pack_weights(model: nn.Module) -> None:
    """Pack every `Linear` of a trained model, whose weights will not change."""
    for module in model.modules():
        if isinstance(module, Linear):
            module.pack()
