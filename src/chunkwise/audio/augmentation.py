"""What training does to audio and features, and nothing else does: speed perturbation and SpecAugment."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentConfig:
    """What training does to the audio and the features; validation and tests never see it."""

    speed_factors: list[float] = field(default_factory=lambda: [1.0])  # one is drawn per utterance and epoch
    time_masks: int = 0  # SpecAugment masks along time, per utterance
    time_mask_frames: int = 0  # longest time mask
    time_mask_fraction: float = 0.15  # at most this share of the utterance in one mask
    mel_masks: int = 0  # SpecAugment masks along the mel axis, per utterance
    mel_mask_bins: int = 0  # widest mel mask

    def __post_init__(self) -> None:
        if not self.speed_factors or not all(0.5 <= factor <= 2 for factor in self.speed_factors):
            raise ValueError(
                f"augment.speed_factors={self.speed_factors} must lie between 0.5 and 2; try [0.9,1.0,1.1]"
            )
        if not 0 <= self.time_mask_fraction <= 1:
            raise ValueError(f"augment.time_mask_fraction={self.time_mask_fraction} must lie in [0, 1]; try 0.15")
        for name in ("time_masks", "time_mask_frames", "mel_masks", "mel_mask_bins"):
            if getattr(self, name) < 0:
                raise ValueError(f"augment.{name}={getattr(self, name)} must not be negative; try 0")


class SpecAugment:
    """Random stretches of time and bands of mels set to zero, the mean of normalised features.

    Widths are drawn evenly from zero to the configured limit, places evenly over the utterance; each utterance has
    its own. All randomness comes from `generator`.

    Reference: Park et al. 2019, "SpecAugment", arXiv:1904.08779 (without time warping).

    >>> augment = SpecAugment(AugmentConfig(mel_masks=1, mel_mask_bins=4))
    >>> masked = augment(torch.ones(1, 2, 8), torch.tensor([1]), torch.Generator().manual_seed(2))
    >>> masked[0].int().tolist()
    [[1, 1, 0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]]
    """

    def __init__(self, config: AugmentConfig) -> None:
        self.config = config

    def __call__(
        self, features: Float[Tensor, "batch frames mels"], lengths: Int[Tensor, " batch"], generator: torch.Generator
    ) -> Float[Tensor, "batch frames mels"]:
        """The features with their masks; beyond each length nothing changes."""
        _, frames, mels = features.shape
        lengths = lengths.to(features.device)
        longest = (lengths * self.config.time_mask_fraction).long().clamp(max=self.config.time_mask_frames)
        in_time = _stretches(lengths, longest, frames, self.config.time_masks, generator)
        all_mels = torch.full_like(lengths, mels)
        widest = torch.full_like(lengths, min(self.config.mel_mask_bins, mels))
        in_mels = _stretches(all_mels, widest, mels, self.config.mel_masks, generator)
        valid = torch.arange(frames, device=features.device) < lengths[:, None]
        masked = (in_time[:, :, None] | in_mels[:, None, :]) & valid[:, :, None]
        return features.masked_fill(masked, 0.0)


def _stretches(
    lengths: Int[Tensor, " batch"], longest: Int[Tensor, " batch"], size: int, count: int, generator: torch.Generator
) -> Bool[Tensor, "batch size"]:
    """For each row, `count` random stretches of at most `longest` places among the first `lengths` of `size`."""
    draws = torch.rand(2, len(lengths), count, generator=generator, device=generator.device).to(lengths.device)
    width = (draws[0] * (longest[:, None] + 1)).long()
    start = (draws[1] * (lengths[:, None] - width + 1)).long()
    place = torch.arange(size, device=lengths.device)
    inside = (place >= start[:, :, None]) & (place < (start + width)[:, :, None])
    return inside.any(dim=1)
