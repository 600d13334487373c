"""A depthwise convolution over time for frames that lie side by side in memory, as Linear and LayerNorm want them."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import conv1d, conv2d, pad


def depthwise(
    x: Float[Tensor, "rows extended channels"], kernel: Float[Tensor, "channels taps"]
) -> Float[Tensor, "rows frames channels"]:
    """`y[:, t] = sum over k of kernel[:, k] x[:, t + k]`: as many frames as the kernel fits in.

    On the CPU torch's own depthwise gradient runs at a hundredth of the machine's speed, and a change of layout
    before and after costs as much as the convolution: hence the gradient here, and the layout.

    >>> depthwise(torch.arange(4.0).view(1, 4, 1), torch.tensor([[1.0, 10.0]])).flatten().tolist()
    [10.0, 21.0, 32.0]
    """
    if x.device.type == "cpu":
        return _Depthwise.apply(*_as_autocast_would(x, kernel))
    return conv1d(x.transpose(1, 2), kernel[:, None], groups=len(kernel)).transpose(1, 2)


def _as_autocast_would(*operands: Tensor) -> list[Tensor]:
    """A convolution's operands in autocast's format: it does not look into a gradient of one's own."""
    if not torch.is_autocast_enabled("cpu"):
        return list(operands)
    dtype = torch.get_autocast_dtype("cpu")
    return [x if x.dtype == torch.float64 else x.to(dtype) for x in operands]


class _Depthwise(torch.autograd.Function):
    """`depthwise` with its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor) -> Tensor:
        """The convolution."""
        ctx.save_for_backward(x, kernel)
        return _convolve(x, kernel)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradients of frames and kernel."""
        x, kernel = ctx.saved_tensors
        for_x = for_kernel = None
        if ctx.needs_input_grad[0]:
            beyond = kernel.shape[1] - 1
            for_x = _convolve(pad(gradient, (0, 0, beyond, beyond)), kernel.flip(1))
        if ctx.needs_input_grad[1]:
            for_kernel = _correlate(x, gradient)
        return for_x, for_kernel


def _convolve(x: Tensor, kernel: Tensor) -> Tensor:
    """Frames side by side are what oneDNN calls channels-last; it has no double precision."""
    if x.dtype == torch.float64:
        return conv1d(x.transpose(1, 2), kernel[:, None], groups=len(kernel)).transpose(1, 2)
    return conv2d(x.transpose(1, 2)[:, :, None], kernel[:, None, None], groups=len(kernel))[:, :, 0].transpose(1, 2)


def _correlate(x: Tensor, gradient: Tensor) -> Tensor:
    """The kernel's gradient: each channel of each row convolved with its own gradient as the kernel."""
    rows, frames, channels = gradient.shape
    signals = x.transpose(1, 2).reshape(1, rows * channels, -1)
    kernels = gradient.transpose(1, 2).reshape(rows * channels, 1, frames)
    return conv1d(signals, kernels, groups=rows * channels).view(rows, channels, -1).sum(0)
