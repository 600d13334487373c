"""The paths through a model that dependencies are measured along, as functions of batches of one shape.

A system maps `[batch, inputs, channels]` to `[batch, outputs, width]`, differentiably and each row on its own. It knows
how its inputs and outputs are called, and what may depend on what.
"""

from copy import deepcopy
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from chunkwise.analysis.expectation import encoder_reach, fbank_reach, normalisation_reach, subsampling_reach, through
from chunkwise.analysis.measurement import Function
from chunkwise.audio.fbank import Fbank
from chunkwise.models.conformer import ConformerEncoder
from chunkwise.models.context import ChunkContext
from chunkwise.models.transducer import Transducer


@dataclass(frozen=True, slots=True)
class System:
    """A function, what its outputs may depend on, and each output's own block of inputs."""

    name: str
    outputs: str  # what one output is, in the singular
    inputs: str  # what one input is, in the singular
    function: Function
    expected: Bool[Tensor, "outputs inputs"]
    starts: Int[Tensor, " outputs"]  # the first input of each output's own block
    stride: int  # inputs in such a block


def frozen(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy in evaluation mode and in this precision, whose weights want no gradient."""
    return deepcopy(model).to(dtype).eval().requires_grad_(False)


def layers_system(model: Transducer, num_frames: int, context: ChunkContext) -> System:
    """Encoder frames from the encoder's frames after subsampling: what its layers mix."""
    return System(
        "layers", "encoder frame", "subsampled frame",
        lambda frames: model.encoder.contextualise(frames, _all(frames), context)[0],
        encoder_reach(num_frames, model.config.encoder, context), torch.arange(num_frames), 1,
    )  # fmt: skip


def features_system(model: Transducer, num_features: int, context: ChunkContext) -> System:
    """Encoder frames from feature frames: normalisation, subsampling and layers."""
    normalisation = normalisation_reach(num_features, model.config.normalisation)
    subsampling = through(subsampling_reach(num_features), normalisation)
    reach = through(encoder_reach(len(subsampling), model.config.encoder, context), subsampling)
    stride = ConformerEncoder.stride
    return System(
        "frames_from_features", "encoder frame", "feature frame",
        lambda features: model.encode(features, _all(features), context)[0],
        reach, torch.arange(len(reach)) * stride, stride,
    )  # fmt: skip


def samples_system(model: Transducer, fbank: Fbank, num_samples: int, context: ChunkContext) -> System:
    """Encoder frames from raw samples: filter bank, subsampling and layers."""
    windows = fbank_reach(fbank, num_samples)
    below = features_system(model, len(windows), context)

    def encode(samples: Float[Tensor, "batch samples 1"]) -> Float[Tensor, "batch encoder_frames d_model"]:
        return below.function(fbank(samples[:, :, 0], _all(samples))[0])

    reach = through(below.expected, windows)
    return System(
        "frames_from_samples", "encoder frame", "sample", encode, reach, below.starts * fbank.stride,
        below.stride * fbank.stride,
    )  # fmt: skip


def _all(batch: Float[Tensor, "batch inputs channels"]) -> Int[Tensor, " batch"]:
    """Lengths of a batch without padding."""
    return torch.full((batch.shape[0],), batch.shape[1], device=batch.device)
