"""Normalisation of features: by the training set's statistics, and by a running mean of what was heard so far."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from chunkwise.nn.masks import valid_frames


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalisationConfig:
    """What is subtracted from the features beside the training set's mean."""

    prior_frames: float | None = None  # frames that the training set's mean counts for in a running mean; null: none

    def __post_init__(self) -> None:
        if self.prior_frames is not None and not self.prior_frames >= 0:
            raise ValueError(f"normalisation.prior_frames={self.prior_frames} must not be negative; try 50")


@dataclass(frozen=True, slots=True)
class NormalisationState:
    """What a running mean remembers: the sum of the frames so far (float64), and how many they are."""

    sums: Float[Tensor, "batch mels"]
    frames: int


class FeatureNormalisation(nn.Module):
    """Mean and variance normalisation, kept with the model: (features - mean) / std per mel bin.

    The statistics are those of the training set and never change afterwards, so that an utterance's
    features do not depend on its neighbours, its length or how much of it has arrived. With `prior_frames`
    each frame also loses the mean of its own utterance up to and including itself, in which the training set's
    mean counts for so many frames: another speaker or microphone is forgotten as more of it is heard. The box is
    streamable: stride 1, no frame to the right, and to the left none or (running) all.

    Reference: "online CMVN" of Kaldi, Povey et al. 2011, with a window that never ends.

    >>> running = FeatureNormalisation(1, NormalisationConfig(prior_frames=1))
    >>> running(torch.tensor([[[4.0], [5.0], [7.0]]]), torch.tensor([3])).flatten().tolist()
    [2.0, 2.0, 3.0]
    """

    mean: Tensor
    std: Tensor
    stride = 1
    right = 0

    def __init__(self, num_mels: int, config: NormalisationConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("mean", torch.zeros(num_mels))
        self.register_buffer("std", torch.ones(num_mels))

    @property
    def left(self) -> int | None:
        """How many frames before its own an output depends on; `None`: all."""
        return 0 if self.config.prior_frames is None else None

    def set_statistics(
        self, mean: Float[Tensor, " mels"], std: Float[Tensor, " mels"], least_std: float = 1e-2
    ) -> None:
        """Keep the training set's statistics; a constant mel bin must not be blown up."""
        self.mean.copy_(mean)
        self.std.copy_(std.clamp(min=least_std))

    def forward(
        self, features: Float[Tensor, "batch frames mels"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch frames mels"]:
        """Normalised features, zeros past each utterance's length."""
        padding = ~valid_frames(lengths, features.shape[1])[:, :, None]
        normalised, _ = self.stream(features, self.initial_state(len(features)))
        return normalised.masked_fill(padding, 0.0)

    def initial_state(self, batch: int = 1) -> NormalisationState:
        """The state before the first frame."""
        return NormalisationState(self.mean.new_zeros(batch, len(self.mean), dtype=torch.float64), frames=0)

    def stream(
        self, piece: Float[Tensor, "batch frames mels"], state: NormalisationState
    ) -> tuple[Float[Tensor, "batch frames mels"], NormalisationState]:
        """Normalised features of a piece of any number of frames, without padding."""
        normalised = (piece - self.mean) / self.std
        if self.config.prior_frames is None or piece.shape[1] == 0:
            return normalised, state
        sums = state.sums[:, None] + normalised.cumsum(dim=1, dtype=torch.float64)
        heard = state.frames + torch.arange(1, piece.shape[1] + 1, device=piece.device)
        means = sums / (self.config.prior_frames + heard)[:, None]
        return normalised - means.to(normalised), NormalisationState(sums[:, -1], state.frames + piece.shape[1])

    def flush(self, state: NormalisationState) -> tuple[Float[Tensor, "batch 0 mels"], NormalisationState]:
        """Nothing is held back: no frames."""
        return self.mean.new_zeros(len(state.sums), 0, len(self.mean)), state
