"""What training does to audio and features, and nothing else does: speed perturbation and SpecAugment."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentConfig:
    """What training does to the audio and the features; validation and tests never see it."""

    from_epoch: int = 0  # the epochs before it, counted from 0, see audio and features as they are
    speed_factors: list[float] = field(default_factory=lambda: [1.0])  # one is drawn per utterance and epoch
    time_masks: int = 0  # SpecAugment masks along time, per utterance
    time_mask_frames: int = 0  # longest time mask
    time_mask_fraction: float = 0.15  # at most this share of the utterance in one mask
    mel_masks: int = 0  # SpecAugment masks along the mel axis, per utterance
    mel_mask_bins: int = 0  # widest mel mask
    noise_snr_db: list[float] = field(default_factory=list)  # [lowest, highest] SNR of added noise; empty: none
    mel_warp: float = 0.0  # another vocal tract: the mel axis is stretched by up to this share, per utterance
    channel_std: float = 0.0  # another microphone: spread of a smooth offset over the mels, in the features' deviations

    def __post_init__(self) -> None:
        if not self.speed_factors or not all(0.5 <= factor <= 2 for factor in self.speed_factors):
            raise ValueError(
                f"augment.speed_factors={self.speed_factors} must lie between 0.5 and 2; try [0.9,1.0,1.1]"
            )
        if not 0 <= self.time_mask_fraction <= 1:
            raise ValueError(f"augment.time_mask_fraction={self.time_mask_fraction} must lie in [0, 1]; try 0.15")
        if self.noise_snr_db and (len(self.noise_snr_db) != 2 or self.noise_snr_db[0] > self.noise_snr_db[1]):
            raise ValueError(
                f"augment.noise_snr_db={self.noise_snr_db} must be [lowest, highest] or empty; try [10,40]"
            )
        if not 0 <= self.mel_warp < 0.5:
            raise ValueError(f"augment.mel_warp={self.mel_warp} must lie in [0, 0.5); try 0.1")
        if not self.channel_std >= 0:
            raise ValueError(f"augment.channel_std={self.channel_std} must not be negative; try 0.3")
        for name in ("from_epoch", "time_masks", "time_mask_frames", "mel_masks", "mel_mask_bins"):
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


class NoiseAddition:
    """Another background: white noise added to each waveform, at a signal-to-noise ratio of its own.

    All randomness comes from `generator`.
    """

    def __init__(self, config: AugmentConfig) -> None:
        self.lowest_db, self.highest_db = config.noise_snr_db

    def __call__(
        self, waveforms: Float[Tensor, "batch samples"], lengths: Int[Tensor, " batch"], generator: torch.Generator
    ) -> Float[Tensor, "batch samples"]:
        """The waveforms with noise; beyond each length nothing changes."""
        batch, samples = waveforms.shape
        draws = torch.rand(batch, 1, generator=generator, device=generator.device).to(waveforms)
        noise = torch.randn(batch, samples, generator=generator, device=generator.device).to(waveforms)
        valid = torch.arange(samples, device=waveforms.device) < lengths.to(waveforms.device)[:, None]
        energy = waveforms.masked_fill(~valid, 0.0).square().sum(dim=1, keepdim=True)
        level = (energy / lengths.to(waveforms)[:, None].clamp(min=1)).sqrt()
        snr_db = self.lowest_db + (self.highest_db - self.lowest_db) * draws
        return torch.where(valid, waveforms + noise * level * 10 ** (-snr_db / 20), waveforms)


CHANNEL_COSINES = 3
"""Level, tilt and curve: how many cosines over the mel axis make up a channel."""


class SpeakerPerturbation:
    """Another speaker at another microphone: each utterance's mel axis stretched, and a smooth offset added.

    Stretching the frequency axis stands for another length of the vocal tract, a sum of low cosines over the mels for
    another level and frequency response. All randomness comes from `generator`.

    Reference: Jaitly and Hinton 2013, "Vocal Tract Length Perturbation (VTLP) improves speech recognition".
    """

    def __init__(self, config: AugmentConfig) -> None:
        self.config = config

    def __call__(
        self, features: Float[Tensor, "batch frames mels"], lengths: Int[Tensor, " batch"], generator: torch.Generator
    ) -> Float[Tensor, "batch frames mels"]:
        """The normalised features as another speaker might have given them; beyond each length nothing changes."""
        batch, frames, mels = features.shape
        draws = torch.rand(batch, 1, generator=generator, device=generator.device).to(features)
        weights = torch.randn(batch, CHANNEL_COSINES, generator=generator, device=generator.device).to(features)
        warped = _stretched(features, 1 + self.config.mel_warp * (2 * draws - 1))
        places = (torch.arange(mels, device=features.device, dtype=features.dtype) + 0.5) / mels
        order = torch.arange(CHANNEL_COSINES, device=features.device, dtype=features.dtype)
        cosines = (torch.pi * order[:, None] * places).cos()
        offset = self.config.channel_std * (weights @ cosines)
        valid = torch.arange(frames, device=features.device) < lengths.to(features.device)[:, None]
        return torch.where(valid[:, :, None], warped + offset[:, None], features)


def _stretched(
    features: Float[Tensor, "batch frames mels"], factors: Float[Tensor, "batch 1"]
) -> Float[Tensor, "batch frames mels"]:
    """Bin m of each row becomes what stood at `m * factor`, interpolated; the last bin stands for all beyond."""
    mels = features.shape[2]
    places = (torch.arange(mels, device=features.device, dtype=features.dtype) * factors).clamp(max=mels - 1)
    below = places.long().clamp(max=mels - 2)
    share = (places - below)[:, None]
    index = below[:, None].expand(-1, features.shape[1], -1)
    return features.gather(2, index) * (1 - share) + features.gather(2, index + 1) * share


WaveformAugmentation = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""Waveforms, their lengths in samples and a generator, to waveforms of the same shape."""

FeatureAugmentation = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""Normalised features, their lengths and a generator, to features of the same shape."""


def build_augmentation(config: AugmentConfig) -> FeatureAugmentation | None:
    """What training does to the features of a batch; `None` where it does nothing."""
    steps: list[FeatureAugmentation] = []
    if config.mel_warp or config.channel_std:
        steps.append(SpeakerPerturbation(config))
    if config.time_masks or config.mel_masks:
        steps.append(SpecAugment(config))
    if not steps:
        return None

    def augment(features: Tensor, lengths: Tensor, generator: torch.Generator) -> Tensor:
        for step in steps:
            features = step(features, lengths, generator)
        return features

    return augment
