"""`torch.compile` for what a training step does frame by frame.

Attention and the depthwise convolution run in kernels of their own, whose work depends on lengths and chunks. All that
lies between them treats each frame alone. It is compiled with the frames of a whole batch along one axis of unknown
length, so that neither another length nor another chunk size compiles anything anew. The joiner's axes are all of
unknown length. Validation, which has no gradient, runs the same code uncompiled; weights and their names do not change.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from chunkwise.losses.objective import Objective
from chunkwise.models.conformer import ConformerEncoder

FRAMEWISE = ("before_attention", "before_mixing", "after_mixing")
"""The methods of an encoder layer that treat each frame alone."""


def compile_training(objective: Objective, device: torch.device) -> None:
    """Compile the encoder's and the joiner's part of every training step, at its first call.

    Raises:
        ValueError: nothing can be compiled on this machine.
    """
    _refuse_where_nothing_compiles(device)
    compile_layers(objective.model.encoder)
    joiner = objective.model.joiner
    joiner.forward = _in_training(joiner.forward, flat=False)


def compile_layers(encoder: ConformerEncoder) -> None:
    """Compile what the encoder's layers do frame by frame."""
    for layer in encoder.layers:
        for name in FRAMEWISE:
            setattr(layer, name, _in_training(getattr(layer, name), flat=True))


def _in_training(method: Callable[..., Tensor | tuple[Tensor, ...]], flat: bool) -> Callable[..., Any]:
    """`method`, compiled where a gradient is wanted; `flat` joins all axes but the last into one."""
    compiled = torch.compile(method, dynamic=True, fullgraph=True)

    @wraps(method)
    def run(*inputs: Tensor) -> Any:
        if not torch.is_grad_enabled():
            return method(*inputs)
        if not flat:
            return compiled(*inputs)
        axes = inputs[0].shape[:-1]
        outputs = compiled(*(_flat(x) for x in inputs))
        if isinstance(outputs, Tensor):
            return outputs.unflatten(0, axes)
        return tuple(output.unflatten(0, axes) for output in outputs)

    return run


def _flat(x: Tensor) -> Tensor:
    """All axes but the last as one, without a tie to `x`: the shape of what a view was taken of is compiled in."""
    return torch.ops.aten._unsafe_view(x.contiguous(), (x.shape[:-1].numel(), x.shape[-1]))


def _refuse_where_nothing_compiles(device: torch.device) -> None:
    """Compile a small function and its gradient."""
    x = torch.ones(3, device=device, requires_grad=True)
    try:
        torch.compile(lambda x: x.sin().cumsum(0).sum(), fullgraph=True)(x).backward()
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"runtime.compile=true: torch.compile does not work on this machine's {device.type.upper()} ({reason}); it "
            f"needs a C++ compiler for the CPU and Triton for CUDA; install them, or leave runtime.compile=false"
        ) from error
