"""What may depend on what, computed from chunk borders, kernel reach and window sizes alone.

Every function gives a boolean matrix, a row per output and a column per input. None of them runs a model, and none
uses the masks that the model runs with: they are what measurements of the model are held against.
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from chunkwise.audio.fbank import Fbank
from chunkwise.models.conformer import EncoderConfig
from chunkwise.models.context import ChunkContext
from chunkwise.models.normalisation import NormalisationConfig
from chunkwise.nn.subsampling import Subsampling


def attention_reach(num_frames: int, context: ChunkContext) -> Bool[Tensor, "frames frames"]:
    """Attention: from the start of the oldest visible chunk to the end of the frame's own.

    >>> int(attention_reach(24, ChunkContext(4, 1)).sum())
    176
    """
    frame = torch.arange(num_frames)
    chunk_frames = context.chunk_frames or num_frames
    start = frame - frame % chunk_frames
    left_frames = num_frames if context.left_frames is None else context.left_frames
    return _between(start - left_frames, start + chunk_frames, num_frames)


def convolution_reach(num_frames: int, kernel_size: int, context: ChunkContext) -> Bool[Tensor, "frames frames"]:
    """The depthwise convolution: half a kernel to the left, and to the right no farther than the chunk's border.

    >>> convolution_reach(6, 5, ChunkContext(3, 1)).int().tolist()[4]
    [0, 0, 1, 1, 1, 1]
    """
    frame = torch.arange(num_frames)
    half = (kernel_size - 1) // 2
    chunk_frames = context.chunk_frames or num_frames
    border = frame - frame % chunk_frames + chunk_frames
    return _between(frame - half, torch.minimum(frame + half + 1, border), num_frames)


def encoder_reach(num_frames: int, config: EncoderConfig, context: ChunkContext) -> Bool[Tensor, "frames frames"]:
    """All layers, each attention and then convolution; counted in encoder frames, after subsampling.

    >>> config = EncoderConfig(num_layers=2, kernel_size=5)
    >>> int(encoder_reach(24, config, ChunkContext(4, 1)).sum()), int(encoder_reach(24, config, ChunkContext(4)).sum())
    (304, 336)
    """
    convolution = convolution_reach(num_frames, config.kernel_size, context)
    layer = through(convolution, attention_reach(num_frames, context))
    reach = torch.eye(num_frames, dtype=torch.bool)
    for _ in range(config.num_layers):
        reach = through(layer, reach)
    return reach


def normalisation_reach(num_features: int, config: NormalisationConfig) -> Bool[Tensor, "frames frames"]:
    """Normalisation: the frame alone, and with a running mean all frames before it."""
    itself = torch.eye(num_features, dtype=torch.bool)
    return itself if config.prior_frames is None else itself.new_ones(num_features, num_features).tril()


def subsampling_reach(num_features: int) -> Bool[Tensor, "encoder_frames frames"]:
    """Subsampling: the encoder frame's own block of `stride` feature frames, `left` before and `right` after it."""
    blocks = torch.arange(-(-num_features // Subsampling.stride)) * Subsampling.stride
    return _between(blocks - Subsampling.left, blocks + Subsampling.stride + Subsampling.right, num_features)


def fbank_reach(fbank: Fbank, num_samples: int) -> Bool[Tensor, "frames samples"]:
    """The filter bank's windows; what reaches over an edge of the waveform is mirrored back into it."""
    starts = torch.arange(fbank.num_frames(num_samples)) * fbank.stride - fbank.left
    place = (starts[:, None] + torch.arange(fbank.window_samples)) % (2 * num_samples)
    mirrored = torch.minimum(place, 2 * num_samples - 1 - place)
    return torch.zeros(len(starts), num_samples, dtype=torch.bool).scatter_(1, mirrored, True)


def through(
    outer: Bool[Tensor, "outputs between"], inner: Bool[Tensor, "between inputs"]
) -> Bool[Tensor, "outputs inputs"]:
    """The boolean product: an output depends on an input through anything in between.

    >>> through(torch.tensor([[True, False]]), torch.tensor([[False, True], [True, True]])).tolist()
    [[False, True]]
    """
    return torch.stack([inner[row].any(dim=0) for row in outer])


def earlier_rows_too(reach: Bool[Tensor, "encoder_frames inputs"], frames: list[int]) -> Bool[Tensor, "symbols inputs"]:
    """What a search may have used that stands at each of these encoder frames: all rows up to there."""
    empty = reach.new_zeros(0, reach.shape[1])
    return torch.stack([reach[: frame + 1].any(dim=0) for frame in frames]) if frames else empty


def _between(first: Tensor, end: Tensor, num_inputs: int) -> Bool[Tensor, "outputs inputs"]:
    """Rows that are True from `first` up to, but without, `end`."""
    inputs = torch.arange(num_inputs)
    return (first[:, None] <= inputs) & (inputs < end[:, None])
