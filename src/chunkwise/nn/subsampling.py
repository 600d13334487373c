"""From feature frames (10 ms) to encoder frames (40 ms)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from chunkwise.nn.masks import valid_frames


@dataclass(frozen=True, slots=True)
class SubsamplingState:
    """The inputs of each convolution that its next output still needs."""

    features: Float[Tensor, "batch 1 held_features mels"]
    hidden: Float[Tensor, "batch channels held_hidden half_mels"]


class Subsampling(nn.Module):
    """Two strided convolutions that turn four feature frames into one encoder frame.

    Encoder frame k reads feature frames 4k - 3 to 4k + 3: its own block of four and three before it, so
    subsampling adds no look-ahead. A last block of fewer than four frames still gives an encoder frame.
    """

    stride = 4
    left = 3
    right = 0

    def __init__(self, num_mels: int, channels: int, d_model: int) -> None:
        super().__init__()
        self.num_mels = num_mels
        self.first = nn.Conv2d(1, channels, 3, stride=2, padding=(0, 1))
        self.second = nn.Conv2d(channels, channels, 3, stride=2, padding=(0, 1))
        self.project = nn.Linear(channels * ((num_mels + 3) // 4), d_model)

    @staticmethod
    def output_lengths(lengths: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """How many encoder frames so many feature frames give.

        >>> Subsampling.output_lengths(torch.tensor([0, 1, 4, 5])).tolist()
        [0, 1, 1, 2]
        """
        return (lengths + 3) // 4

    def forward(
        self, features: Float[Tensor, "batch frames mels"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch encoder_frames d_model"], Int[Tensor, " batch"]]:
        """The encoder's input frames of whole utterances, and how many each has."""
        hidden = self.halve(features[:, None], lengths, self.first)
        reduced = self.halve(hidden, (lengths + 1) // 2, self.second)
        return self.finish(reduced), self.output_lengths(lengths)

    def initial_state(self, batch: int) -> SubsamplingState:
        """One frame of silence before each convolution's first input."""
        weight = self.first.weight
        half_mels = (self.num_mels + 1) // 2
        return SubsamplingState(
            weight.new_zeros(batch, 1, 1, self.num_mels),
            weight.new_zeros(batch, self.first.out_channels, 1, half_mels),
        )

    def stream(
        self,
        features: Float[Tensor, "batch frames mels"],
        state: SubsamplingState,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch encoder_frames d_model"], SubsamplingState]:
        """The encoder frames that these feature frames complete.

        `lengths` ends rows at different frames of a piece of whole blocks, as `flush` would.
        """
        if lengths is not None:
            features = features.masked_fill(~valid_frames(lengths, features.shape[1])[:, :, None], 0.0)
        hidden, held_features = self.advance(torch.cat((state.features, features[:, None]), dim=2), self.first)
        if lengths is not None:
            hidden = hidden.masked_fill(~valid_frames((lengths + 1) // 2, hidden.shape[2])[:, None, :, None], 0.0)
        reduced, held_hidden = self.advance(torch.cat((state.hidden, hidden), dim=2), self.second)
        return self.finish(reduced), SubsamplingState(held_features, held_hidden)

    def flush(self, state: SubsamplingState) -> tuple[Float[Tensor, "batch encoder_frames d_model"], SubsamplingState]:
        """The encoder frame of a last, incomplete block."""
        hidden, held_features = self.advance(complete(state.features), self.first)
        reduced, held_hidden = self.advance(complete(torch.cat((state.hidden, hidden), dim=2)), self.second)
        return self.finish(reduced), SubsamplingState(held_features, held_hidden)

    @staticmethod
    def halve(
        x: Float[Tensor, "batch channels frames mels"], lengths: Int[Tensor, " batch"], conv: nn.Conv2d
    ) -> Tensor:
        """One convolution over whole utterances; frame i reads 2i - 1 to 2i + 1, zeros outside the utterance."""
        frames = x.shape[2]
        x = x.masked_fill(~valid_frames(lengths, frames)[:, None, :, None], 0.0)
        return relu(conv(pad(x, (0, 0, 1, frames % 2))))

    @staticmethod
    def advance(x: Float[Tensor, "batch channels frames mels"], conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
        """The outputs that are complete, and the inputs that the next one still needs."""
        outputs = (x.shape[2] - 1) // 2
        held = x[:, :, 2 * outputs :]
        if outputs == 0:
            return x.new_zeros(x.shape[0], conv.out_channels, 0, (x.shape[3] + 1) // 2), held
        return relu(conv(x[:, :, : 2 * outputs + 1])), held

    def finish(self, reduced: Float[Tensor, "batch channels frames mels"]) -> Float[Tensor, "batch frames d_model"]:
        """Channels and mel bands to `d_model`."""
        return self.project(reduced.transpose(1, 2).flatten(2))


def complete(held: Tensor) -> Tensor:
    """Add the frame of silence that an odd number of frames ends in."""
    return pad(held, (0, 0, 0, 1)) if held.shape[2] == 2 else held
