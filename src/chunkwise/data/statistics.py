"""Mean and deviation of features over a corpus, in sums that processes can add up."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from chunkwise.audio.fbank import Fbank
from chunkwise.data.batches import Batch

MIN_STD = 1e-2
"""A mel band that never changes (digital silence) must not blow up rounding noise."""


@dataclass(frozen=True, slots=True)
class Moments:
    """How many frames, their sum and the sum of their squares, per mel band.

    >>> ours = Moments.of(torch.full((1, 3, 1), 4.0), torch.tensor([3]))
    >>> theirs = Moments.of(torch.full((1, 3, 1), -4.0), torch.tensor([1]))
    >>> (ours + theirs).mean.tolist(), (ours + theirs).variance.tolist()
    ([2.0], [12.0])
    """

    sums: Float[Tensor, "three mels"]  # float64: counts, sums, sums of squares; plain addition merges them

    @classmethod
    def empty(cls, num_mels: int) -> "Moments":
        """No frame yet."""
        return cls(torch.zeros(3, num_mels, dtype=torch.float64))

    @classmethod
    def of(cls, features: Float[Tensor, "batch frames mels"], lengths: Int[Tensor, " batch"]) -> "Moments":
        """The moments of the valid frames."""
        valid = torch.arange(features.shape[1], device=lengths.device) < lengths[:, None]
        frames = features[valid].double()
        return cls(torch.stack([torch.ones_like(frames).sum(0), frames.sum(0), frames.square().sum(0)]).cpu())

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(self.sums + other.sums)

    @property
    def frames(self) -> int:
        """How many frames were counted."""
        return int(self.sums[0, 0])

    @property
    def mean(self) -> Float[Tensor, " mels"]:
        """The mean of each band (float64)."""
        if self.frames == 0:
            raise ValueError("feature statistics need at least one frame of audio; check the training split")
        return self.sums[1] / self.sums[0]

    @property
    def variance(self) -> Float[Tensor, " mels"]:
        """The variance of each band (float64)."""
        return (self.sums[2] / self.sums[0] - self.mean.square()).clamp(min=0)  # rounding can go just below zero

    @property
    def std(self) -> Float[Tensor, " mels"]:
        """The standard deviation of each band (float64), at least `MIN_STD`."""
        return self.variance.sqrt().clamp(min=MIN_STD)


@torch.no_grad()
def feature_moments(batches: Iterable[Batch], fbank: Fbank) -> Moments:
    """The moments of all features of these batches."""
    total = Moments.empty(fbank.config.num_mels)
    for batch in batches:
        features, lengths = fbank(batch.waveforms, batch.lengths)
        total = total + Moments.of(features, lengths * batch.weights.long())
    return total
