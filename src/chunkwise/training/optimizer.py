"""AdamW in two groups, and the learning rate as a pure function of the step."""

import math
from dataclasses import dataclass
from enum import StrEnum

from torch import nn
from torch.optim import AdamW, Optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """AdamW; biases, norms and embeddings are not decayed."""

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-8
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        """Refuse what AdamW cannot run with."""
        for name in ("lr", "eps"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(
                    f"optimizer.{name}={value} must be a positive number; try {1e-3 if name == 'lr' else 1e-8}"
                )
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ValueError(f"optimizer.{name}={value} must be at least 0 and below 1; try 0.9 and 0.98")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise ValueError(f"optimizer.weight_decay={self.weight_decay} must not be negative; try 0.01")


class ScheduleKind(StrEnum):
    """The learning-rate schedules; each begins with a linear warm-up."""

    linear = "linear"
    cosine = "cosine"
    noam = "noam"
    constant = "constant"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConfig:
    """The learning rate over steps, as a factor of `optimizer.lr`."""

    kind: ScheduleKind = ScheduleKind.linear
    warmup_steps: int = 200
    final_factor: float = 0.0  # linear, cosine: the factor at `training.max_steps`
    by_time: bool = False  # linear, cosine: end with `training.max_seconds` where that comes before the last step

    def __post_init__(self) -> None:
        """Refuse a warm-up or an end that means nothing."""
        if self.warmup_steps < 0:
            raise ValueError(f"schedule.warmup_steps={self.warmup_steps} must not be negative; try 0 or 200")
        if not 0 <= self.final_factor <= 1:
            raise ValueError(f"schedule.final_factor={self.final_factor} must lie between 0 and 1; try 0 or 0.1")


def build_optimizer(module: nn.Module, config: OptimizerConfig) -> AdamW:
    """AdamW over the module's trainable parameters: matrices and kernels are decayed, vectors and embeddings not.

    Reference: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", arXiv:1711.05101.

    >>> optimizer = build_optimizer(nn.Linear(2, 3), OptimizerConfig())
    >>> [(group["weight_decay"], [p.ndim for p in group["params"]]) for group in optimizer.param_groups]
    [(0.01, [2]), (0.0, [1])]
    """
    embeddings = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    decayed = [p for p in trainable if p.ndim >= 2 and id(p) not in embeddings]
    kept = [p for p in trainable if p.ndim < 2 or id(p) in embeddings]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True)


def learning_rate(
    optimizer: OptimizerConfig, schedule: ScheduleConfig, step: int, max_steps: int, time_share: float = 0.0
) -> float:
    """The learning rate of update number `step`, counted from 1 in updates that were taken.

    `time_share` is the share of `training.max_seconds` that is used up. With `schedule.by_time` a run that is behind
    its time decays as if it had taken the steps that belong to it; a run that is not behind does not notice.
    `noam` is the inverse square root of Vaswani et al. 2017 (arXiv:1706.03762), scaled to peak at `optimizer.lr`.

    >>> schedule = ScheduleConfig(warmup_steps=10)
    >>> [learning_rate(OptimizerConfig(lr=1.0), schedule, step, max_steps=110) for step in (1, 10, 60, 110)]
    [0.1, 1.0, 0.5, 0.0]
    """
    warmup = schedule.warmup_steps
    rise = min(1.0, step / warmup) if warmup else 1.0
    reached = max(step, time_share * max_steps) if schedule.by_time else step
    done = min(1.0, max(0.0, (reached - warmup) / max(1, max_steps - warmup)))
    return optimizer.lr * min(rise, _decay(schedule, step, done))


def _decay(schedule: ScheduleConfig, step: int, done: float) -> float:
    match schedule.kind:
        case ScheduleKind.linear:
            return schedule.final_factor + (1 - schedule.final_factor) * (1 - done)
        case ScheduleKind.cosine:
            return schedule.final_factor + (1 - schedule.final_factor) * 0.5 * (1 + math.cos(math.pi * done))
        case ScheduleKind.noam:
            return min(1.0, math.sqrt(max(1, schedule.warmup_steps) / max(1, step)))
        case ScheduleKind.constant:
            return 1.0


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Give every parameter group the same learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate
