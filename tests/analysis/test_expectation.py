"""The exact answers, by hand and against a plain loop."""

import pytest
import torch

from chunkwise.analysis.expectation import (
    attention_reach,
    convolution_reach,
    earlier_rows_too,
    encoder_reach,
    fbank_reach,
    subsampling_reach,
    through,
)
from chunkwise.audio.fbank import Fbank, FbankConfig
from chunkwise.models.conformer import EncoderConfig
from chunkwise.models.context import ChunkContext

CONTEXTS = [ChunkContext(), *(ChunkContext(chunk, left) for chunk in (1, 4, 5, 40) for left in (None, 0, 1, 2))]


def counts(left_chunks: int | None) -> list[int]:
    context = ChunkContext(4, left_chunks)
    layers = [encoder_reach(24, EncoderConfig(num_layers=n, kernel_size=5), context) for n in (1, 2)]
    return [int(matrix.sum()) for matrix in (attention_reach(24, context), *layers)]


def test_the_exact_counts_of_24_frames_in_chunks_of_4() -> None:
    assert counts(left_chunks=1) == [176, 208, 304]
    assert counts(left_chunks=None)[2] == 336


def test_rows_of_the_exact_matrix() -> None:
    reach = encoder_reach(24, EncoderConfig(num_layers=2, kernel_size=5), ChunkContext(4, 1))
    assert reach[16].nonzero()[:, 0].tolist() == list(range(20))
    assert reach[18].nonzero()[:, 0].tolist() == list(range(4, 20))


def test_a_convolution_without_a_border_would_give_416() -> None:
    context = ChunkContext(4, 1)
    layer = through(convolution_reach(24, 5, ChunkContext()), attention_reach(24, context))
    assert int(through(layer, layer).sum()) == 416


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.label)
@pytest.mark.parametrize("frames", [1, 7, 24])
def test_every_entry_follows_the_rule(context: ChunkContext, frames: int) -> None:
    attention, convolution = attention_reach(frames, context), convolution_reach(frames, 7, context)
    chunk = context.chunk_frames or frames
    left = frames if context.left_chunks is None else context.left_chunks
    for i in range(frames):
        for j in range(frames):
            assert bool(attention[i, j]) == (0 <= i // chunk - j // chunk <= left)
            assert bool(convolution[i, j]) == (-3 <= j - i <= 3 and j // chunk <= i // chunk)


def test_subsampling_reads_its_block_and_three_frames_before_it() -> None:
    reach = subsampling_reach(10)
    assert [row.nonzero()[:, 0].tolist() for row in reach] == [[0, 1, 2, 3], list(range(1, 8)), [5, 6, 7, 8, 9]]


@pytest.mark.parametrize("samples", [80, 100, 399, 1000, 1601])
def test_windows_are_mirrored_at_both_edges(samples: int) -> None:
    fbank = Fbank(FbankConfig(num_mels=40)).double().eval()
    waveform = torch.randn(1, samples, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    waveform.requires_grad_()
    features, _ = fbank(waveform, torch.tensor([samples]))
    reach = fbank_reach(fbank, samples)
    assert reach.shape == (features.shape[1], samples)
    for frame in range(features.shape[1]):
        (gradient,) = torch.autograd.grad(features[0, frame].sum(), waveform, retain_graph=True)
        assert torch.equal(gradient[0] != 0, reach[frame])


def test_a_search_stands_on_all_earlier_frames() -> None:
    reach = torch.eye(4, dtype=torch.bool)
    assert earlier_rows_too(reach, [0, 2, 2]).int().tolist() == [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]]
    assert earlier_rows_too(reach, []).shape == (0, 4)
