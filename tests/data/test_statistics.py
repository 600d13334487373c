"""Statistics of parts add up to those of the whole, and silence has a deviation."""

import pytest
import torch

from chunkwise.audio.fbank import Fbank, FbankConfig
from chunkwise.data.batches import Utterance, collate, silent_batch
from chunkwise.data.statistics import MIN_STD, Moments, feature_moments


def test_parts_add_up_to_the_whole() -> None:
    # speechbrain/speechbrain#2814: the mean of deviations is not the deviation
    features, lengths = torch.randn(6, 50, 4) * 3 + 5, torch.tensor([50, 40, 30, 20, 10, 0])
    parts = Moments.of(features[:1], lengths[:1]) + Moments.of(features[1:], lengths[1:])
    frames = torch.cat([row[:length] for row, length in zip(features, lengths.tolist(), strict=True)]).double()
    assert parts.frames == 150
    torch.testing.assert_close(parts.mean, frames.mean(0))
    torch.testing.assert_close(parts.std, frames.std(0, correction=0))


def test_ranks_of_opposite_features_have_a_common_variance() -> None:
    four, lengths = torch.full((1, 3, 2), 4.0), torch.tensor([3])
    total = Moments.of(four, lengths) + Moments.of(-four, lengths)
    assert total.mean.tolist() == [0.0, 0.0]
    assert total.variance.tolist() == [16.0, 16.0]


@pytest.mark.parametrize("samples", [400, 16_000])
def test_silence_and_single_frames_have_a_deviation(samples: int) -> None:
    # SeanNaren/deepspeech.pytorch#272; E[x^2] - E[x]^2 must not go below zero
    batch = collate([Utterance("a", "", torch.zeros(samples), [])])
    moments = feature_moments([batch], Fbank(FbankConfig()))
    assert moments.std.tolist() == [MIN_STD] * 80
    torch.testing.assert_close(moments.mean, torch.full((80,), -15.9424, dtype=torch.float64), atol=1e-4, rtol=0)


def test_padding_and_stand_ins_do_not_count() -> None:
    fbank = Fbank(FbankConfig())
    waveforms = [torch.randn(samples, generator=torch.Generator().manual_seed(1)) for samples in (4000, 16_000)]
    together = feature_moments([collate([Utterance("a", "", w, []) for w in waveforms]), silent_batch(800, [])], fbank)
    apart = feature_moments([collate([Utterance("a", "", w, [])]) for w in waveforms], fbank)
    torch.testing.assert_close(together.sums, apart.sums)


def test_no_audio_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one frame"):
        _ = Moments.empty(80).mean
