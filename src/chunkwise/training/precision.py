"""The number format of a training step, and the one place where an update is taken or dropped.

The order is unscale, check, clip, step. A window (the micro-batches of one optimizer step, on all ranks) with any
loss or gradient that is not finite is dropped as a whole and counted once, in every format: the parameters, the
optimizer and the schedule stay as they were, and in fp16 the scale backs off once. A loss that is not finite makes all
of its gradients NaN, so that the check of the summed gradients sees it, on every rank alike.

In fp16 a lower scale may mend it, so training goes on. In bf16 and fp32 nothing would: there a loss that is not finite
ends training at once (`precision.on_nonfinite_loss=skip` goes on). `fault` says when it is over.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer


class PrecisionKind(StrEnum):
    """The arithmetic of forward and backward."""

    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"


class OnNonfiniteLoss(StrEnum):
    """What a loss that is not finite means in bf16 and fp32; fp16 drops the window and lowers its scale."""

    stop = "stop"  # end with a diagnosis, no parameter having changed
    skip = "skip"  # drop the window and go on, until `patience` is used up


@dataclass(frozen=True, slots=True, kw_only=True)
class GradScalerConfig:
    """Loss scaling; used by fp16, inert in bf16 and fp32."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    min_scale: float = 1e-4  # below this, training stops with a diagnosis

    def __post_init__(self) -> None:
        """Refuse a scaling that could not move or end."""
        for name, value, valid, remedy in (
            (
                "init_scale",
                self.init_scale,
                math.isfinite(self.init_scale) and self.init_scale > 0,
                "be positive; try 65536",
            ),
            ("growth_factor", self.growth_factor, self.growth_factor > 1, "be above 1; try 2"),
            ("backoff_factor", self.backoff_factor, 0 < self.backoff_factor < 1, "lie between 0 and 1; try 0.5"),
            ("growth_interval", self.growth_interval, self.growth_interval >= 1, "be at least 1; try 2000"),
            ("min_scale", self.min_scale, self.min_scale >= 0, "not be negative; try 1e-4"),
        ):
            if not valid:
                raise ValueError(f"precision.grad_scaler.{name}={value} must {remedy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionConfig:
    """The number format of a training step."""

    kind: PrecisionKind = PrecisionKind.fp32
    patience: int = 30  # training stops with a diagnosis after so many dropped steps in a row
    on_nonfinite_loss: OnNonfiniteLoss = OnNonfiniteLoss.stop  # bf16, fp32
    grad_scaler: GradScalerConfig = field(default_factory=GradScalerConfig)

    def __post_init__(self) -> None:
        """Refuse a patience that never begins."""
        if self.patience < 1:
            raise ValueError(f"precision.patience={self.patience} must be at least 1; try 30")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What became of one window of micro-batches."""

    grad_norm: float  # of the unscaled gradients, before clipping
    scale: float  # the loss scale that they were computed with
    skipped: bool


class Precision:
    """Autocast, the loss scale and the guarded optimizer step."""

    def __init__(self, config: PrecisionConfig, device: torch.device) -> None:
        self.config = config
        self.device = device
        scaling = config.grad_scaler
        self.scaler = torch.amp.GradScaler(
            device.type,
            init_scale=scaling.init_scale,
            growth_factor=scaling.growth_factor,
            backoff_factor=scaling.backoff_factor,
            growth_interval=scaling.growth_interval,
            enabled=config.kind is PrecisionKind.fp16,
        )

    @property
    def notice(self) -> str | None:
        """What the user should know of options that have no effect."""
        if self.config.kind is PrecisionKind.fp16 or self.config.grad_scaler == GradScalerConfig():
            return None
        return f"precision.kind={self.config.kind} needs no loss scaling: precision.grad_scaler.* is ignored"

    def autocast(self) -> torch.autocast:
        """The context in which forward runs."""
        dtype = torch.float16 if self.config.kind is PrecisionKind.fp16 else torch.bfloat16
        return torch.autocast(self.device.type, dtype=dtype, enabled=self.config.kind is not PrecisionKind.fp32)

    def backward(self, loss: Float[Tensor, ""]) -> None:
        """Add the gradients of one micro-batch, scaled; those of a loss that is not finite become NaN."""
        one_or_nan = loss.detach() * 0 + 1
        self.scaler.scale(loss * one_or_nan).backward()

    def step(self, optimizer: Optimizer, max_grad_norm: float) -> StepOutcome:
        """Unscale, check, clip and step; leaves no gradients behind."""
        scale = float(self.scaler.get_scale())
        self.scaler.unscale_(optimizer)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm))
        skipped = not math.isfinite(norm)
        if not skipped:
            self.scaler.step(optimizer)
        self.scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return StepOutcome(grad_norm=norm, scale=scale, skipped=skipped)

    def fault(self, loss: float, skipped_in_a_row: int) -> str | None:
        """Why training ends after a dropped window whose loss over all ranks is `loss`; `None` where it goes on."""
        config, scale, least = self.config, float(self.scaler.get_scale()), self.config.grad_scaler.min_scale
        is_half = config.kind is PrecisionKind.fp16
        if is_half and scale < least:
            return f"the loss scale fell to {scale:g}, below precision.grad_scaler.min_scale={least:g}"
        if not (is_half or math.isfinite(loss)) and config.on_nonfinite_loss is OnNonfiniteLoss.stop:
            return (
                f"the loss is {loss} in {config.kind}, which no loss scale explains (precision.on_nonfinite_loss=stop)"
            )
        if skipped_in_a_row >= config.patience:
            return (
                f"{skipped_in_a_row} steps in a row had a loss or gradient that is not finite "
                f"(precision.patience={config.patience})"
            )
        return None

    def state_dict(self) -> dict[str, Any]:
        """The format and the scaler's state, in plain types."""
        return {"kind": str(self.config.kind), "scaler": dict(self.scaler.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> str | None:
        """Take the scaler up where it stood; returns a notice where the config asks for another scaling."""
        if state["kind"] != self.config.kind:
            raise ValueError(
                f"precision.kind={self.config.kind} differs from the {state['kind']} of the checkpoint; "
                f"resume with precision={state['kind']}, or start another run"
            )
        asked = dict(self.scaler.state_dict())
        self.scaler.load_state_dict(state["scaler"])
        names = ("growth_factor", "backoff_factor", "growth_interval")
        if asked and any(asked[name] != state["scaler"][name] for name in names):
            return "the loss scaling of the checkpoint is continued: the changed precision.grad_scaler.* is ignored"
        return None
