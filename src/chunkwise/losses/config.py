"""The settings of what training minimises."""

import math
from dataclasses import dataclass
from enum import StrEnum

from chunkwise.losses.pruned import Pruning, Smoothing


class LossKind(StrEnum):
    """The transducer losses."""

    full = "full"
    pruned = "pruned"


class Backend(StrEnum):
    """What computes the pruned loss: the k2 library, PyTorch alone, or k2 where it works."""

    auto = "auto"
    k2 = "k2"
    native = "native"


@dataclass(frozen=True, slots=True, kw_only=True)
class LossConfig:
    """What training minimises: a transducer loss plus a weighted auxiliary CTC loss."""

    kind: LossKind = LossKind.full
    ctc_weight: float = 0.0
    backend: Backend = Backend.auto  # pruned: what computes it
    prune_range: int = 5  # pruned: symbols kept per encoder frame
    simple_weight: float = 0.5  # pruned: weight of the simple loss
    lm_scale: float = 0.25  # pruned: smoothing with the predictor-only model
    am_scale: float = 0.0  # pruned: smoothing with the encoder-only model
    warmup_steps: int = 0  # pruned: steps over which the pruned loss is faded in
    delay_penalty: float = 0.0  # pruned: nats per encoder frame by which a symbol comes later

    def __post_init__(self) -> None:
        if not 0.0 <= self.ctc_weight < 1.0:
            raise ValueError(f"loss.ctc_weight={self.ctc_weight} must be at least 0 and below 1; try 0.2")
        if self.prune_range < 2:
            raise ValueError(f"loss.prune_range={self.prune_range} must be 2 or more, or no path survives; try 5")
        if self.simple_weight <= 0.0:
            raise ValueError(
                f"loss.simple_weight={self.simple_weight} must be above 0, or pruning never learns; try 0.5"
            )
        if min(self.lm_scale, self.am_scale) < 0.0 or self.lm_scale + self.am_scale >= 1.0:
            raise ValueError(
                f"loss.lm_scale={self.lm_scale} and loss.am_scale={self.am_scale} must be 0 or more "
                "and add up to less than 1; try 0.25 and 0.0"
            )
        if self.warmup_steps < 0:
            raise ValueError(f"loss.warmup_steps={self.warmup_steps} must be 0 or more")
        if not 0.0 <= self.delay_penalty < math.inf:
            raise ValueError(f"loss.delay_penalty={self.delay_penalty} must be 0 or more nats per frame; try 0.01")

    def scales(self, step: int) -> tuple[float, float]:
        """The weights of the simple and of the pruned loss at an optimizer step.

        During warm-up the simple loss falls from 1 to its weight while the pruned loss rises from 0.1
        to 1, as icefall does; neither is ever absent, so every parameter always has a gradient.

        >>> LossConfig(warmup_steps=100).scales(50)
        (0.75, 0.55)
        """
        progress = min(step / self.warmup_steps, 1.0) if self.warmup_steps else 1.0
        return 1.0 - progress * (1.0 - self.simple_weight), 0.1 + 0.9 * progress

    def pruning(self, step: int) -> Pruning:
        """How the pruned loss is computed at an optimizer step; symbols may come late until twice the warm-up.

        icefall's recipes wait as long with the penalty: before, the model does not know where symbols belong.

        >>> config = LossConfig(warmup_steps=100, delay_penalty=0.01)
        >>> [config.pruning(step).delay_penalty for step in (0, 199, 200)]
        [0.0, 0.0, 0.01]
        """
        penalty = self.delay_penalty if step >= 2 * self.warmup_steps else 0.0
        return Pruning(self.prune_range, Smoothing(self.lm_scale, self.am_scale), penalty)
