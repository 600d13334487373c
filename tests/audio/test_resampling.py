"""Audio changes its rate once, and pieces give what the whole gives."""

import pytest
import torch
import torchaudio

from chunkwise.audio.resampling import Resampler, convolutions_of_any_length, resample


@pytest.mark.parametrize("rate_hz", [8000, 11_025, 16_000, 22_050, 44_100, 48_000])
@pytest.mark.parametrize("piece", [37, 0.1])
def test_pieces_equal_the_whole(rate_hz: int, piece: float) -> None:
    # k2-fsa/sherpa-onnx#2408: seams between packets, and a tail counted at the wrong rate
    waveform = torch.randn(2, rate_hz // 2 + 17, generator=torch.Generator().manual_seed(1))
    whole = resample(waveform, rate_hz, 16_000)
    assert whole.shape[1] == -(-waveform.shape[1] * 16_000 // rate_hz)
    resampler = Resampler(rate_hz, 16_000)
    state, outputs = resampler.initial_state(2), []
    for samples in waveform.split(int(piece * rate_hz) if piece < 1 else int(piece), dim=1):
        output, state = resampler.stream(samples, state)
        outputs.append(output)
        assert state.pending.shape[1] <= 4 * resampler.stride + 4 * resampler.left
    for _ in range(2):
        output, state = resampler.flush(state)
        outputs.append(output)
    assert outputs[-1].shape == (2, 0)
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize("samples", [0, 1, 5])
def test_a_stream_of_a_few_samples_equals_the_whole(samples: int) -> None:
    resampler, waveform = Resampler(44_100, 16_000), torch.ones(1, samples)
    nothing, state = resampler.stream(waveform, resampler.initial_state())
    rest, _ = resampler.flush(state)
    assert nothing.shape == (1, 0)
    torch.testing.assert_close(rest, resample(waveform, 44_100, 16_000))


def test_resampling_is_torchaudios() -> None:
    waveform = torch.randn(4000, dtype=torch.float64)
    expected = torchaudio.functional.resample(waveform, 8000, 16_000)
    torch.testing.assert_close(resample(waveform, 8000, 16_000), expected)


def test_a_rate_without_a_short_ratio_is_refused() -> None:
    with pytest.raises(ValueError, match="44101 Hz has no short ratio to 16000 Hz; convert"):
        resample(torch.zeros(10), 44_101, 16_000)


def test_onednn_is_back_after_an_error() -> None:
    before = torch.backends.mkldnn.enabled
    with pytest.raises(KeyError), convolutions_of_any_length():
        raise KeyError
    assert torch.backends.mkldnn.enabled == before
