"""The features are Kaldi's, and a stream's are those of the whole."""

from pathlib import Path

import kaldi_native_fbank
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chunkwise.audio.fbank import Fbank, FbankConfig
from chunkwise.audio.reading import read_audio
from chunkwise.audio.resampling import resample

CONFIGS = [
    FbankConfig(),
    FbankConfig(window_ms=32, shift_ms=8),  # 512 and 128 samples
    FbankConfig(window_ms=16, shift_ms=5.625, num_mels=20),  # 256 and 90
    FbankConfig(sample_rate_hz=8000, num_mels=23),  # 200 and 80
    FbankConfig(sample_rate_hz=22_050, num_mels=40),  # 551 and 220
]


def kaldi(waveform: Tensor, config: FbankConfig) -> Tensor:
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = config.sample_rate_hz
    options.frame_opts.frame_length_ms = config.window_ms
    options.frame_opts.frame_shift_ms = config.shift_ms
    options.frame_opts.dither = 0
    options.frame_opts.snip_edges = False
    options.frame_opts.window_type = "povey"
    options.mel_opts.num_bins = config.num_mels
    options.mel_opts.low_freq = config.low_hz
    options.mel_opts.high_freq = config.high_hz
    online = kaldi_native_fbank.OnlineFbank(options)
    online.accept_waveform(config.sample_rate_hz, waveform.tolist())
    online.input_finished()
    frames = [online.get_frame(index) for index in range(online.num_frames_ready)]
    return torch.from_numpy(np.stack(frames)) if frames else torch.zeros(0, config.num_mels)


def whole(fbank: Fbank, waveform: Tensor) -> Tensor:
    features, lengths = fbank(waveform[None], torch.tensor([len(waveform)]))
    assert lengths.tolist() == [features.shape[1]]
    return features[0]


def streamed(fbank: Fbank, pieces: list[Tensor]) -> Tensor:
    state, outputs = fbank.initial_state(), []
    for piece in pieces:
        output, state = fbank.stream(piece[None], state)
        outputs.append(output[0])
        assert state.pending.shape[1] <= fbank.window_samples + 1  # what is kept does not grow
    for _ in range(2):
        output, state = fbank.flush(state)
        outputs.append(output[0])
    assert len(outputs[-1]) == 0
    return torch.cat(outputs)


def assert_close_where_audible(ours: Tensor, theirs: Tensor) -> None:
    """Bands near the floor hold the rounding noise of both sides, which differs from one processor to the next."""
    audible = theirs > -10
    torch.testing.assert_close(ours[audible], theirs[audible], atol=3e-4, rtol=0)
    torch.testing.assert_close(ours, theirs, atol=5e-3, rtol=0)


def noise(samples: int) -> Tensor:
    return 0.1 * torch.randn(samples, generator=torch.Generator().manual_seed(samples))


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("samples", [1, 79, 80, 100, 399, 400, 401, 10_123])
def test_features_are_kaldis(config: FbankConfig, samples: int) -> None:
    # A mirrored signal of few samples has bands near the floor.
    assert_close_where_audible(whole(Fbank(config), noise(samples)), kaldi(noise(samples), config))


@pytest.mark.parametrize("rate_hz", [8000, 16_000])
def test_features_of_real_speech_are_kaldis(shared_data: Path, rate_hz: int) -> None:
    config = FbankConfig(sample_rate_hz=rate_hz, num_mels=rate_hz // 200)
    for path in sorted(shared_data.glob("fsdd/recordings/*_7.wav"))[::10]:
        waveform = resample(*read_audio(path), rate_hz)
        # Recordings at 8 kHz have nothing above 4 kHz.
        assert_close_where_audible(whole(Fbank(config), waveform), kaldi(waveform, config))


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("hops", [1, 2, 7, 50])
def test_a_stream_equals_the_whole(config: FbankConfig, hops: int) -> None:
    # espnet/espnet#4807: wrong frames wherever the window is no multiple of the hop
    fbank = Fbank(config)
    waveform = noise(60 * fbank.stride + 13)
    pieces = list(waveform.split(hops * fbank.stride))
    torch.testing.assert_close(streamed(fbank, pieces), whole(fbank, waveform), atol=1e-5, rtol=0)


@pytest.mark.parametrize("config", [CONFIGS[0], CONFIGS[4]])
@pytest.mark.parametrize("last", [0, 1, 128, 255, 256])
def test_the_last_piece_may_have_any_size(config: FbankConfig, last: int) -> None:
    # espnet/espnet#4216: a short last packet crashed the mirrored edge
    fbank, waveform = Fbank(config), noise(2000 + last)
    pieces = [waveform[:2000], waveform[2000:]]
    torch.testing.assert_close(streamed(fbank, pieces), whole(fbank, waveform), atol=1e-5, rtol=0)


@given(samples=st.integers(0, 1300), cuts=st.lists(st.integers(0, 1300), max_size=6))
@settings(max_examples=60, deadline=None)
def test_any_cutting_gives_the_same_features(samples: int, cuts: list[int]) -> None:
    fbank, waveform = Fbank(FbankConfig()).double(), noise(samples).double()
    edges = [0, *sorted(min(cut, samples) for cut in cuts), samples]
    pieces = [waveform[start:stop] for start, stop in zip(edges, edges[1:], strict=False)]
    torch.testing.assert_close(streamed(fbank, pieces), whole(fbank, waveform), atol=1e-9, rtol=0)


def test_single_samples_and_tiny_streams() -> None:
    fbank = Fbank(FbankConfig())
    for samples in (0, 1, 79, 80, 100, 399, 400, 700):
        waveform = noise(samples)
        torch.testing.assert_close(streamed(fbank, list(waveform.split(1))), whole(fbank, waveform), atol=1e-5, rtol=0)


def test_a_flushed_stream_is_over() -> None:
    fbank = Fbank(FbankConfig())
    _, state = fbank.flush(fbank.initial_state())
    with pytest.raises(ValueError, match="was flushed"):
        fbank.stream(torch.zeros(1, 10), state)


@pytest.mark.parametrize("padding", [float("nan"), 1e4, 0.0])
def test_padding_and_neighbours_are_invisible(padding: float) -> None:
    # lhotse-speech/lhotse#349: padding samples changed the last frames
    fbank, lengths = Fbank(FbankConfig()), torch.tensor([10_123, 0, 40, 3, 48_000])
    waveforms = torch.full((5, 48_000), padding)
    for row, length in zip(waveforms, lengths.tolist(), strict=True):
        row[:length] = noise(length)
    features, frames = fbank(waveforms, lengths)
    assert frames.tolist() == [63, 0, 0, 0, 300]
    for row, length, count in zip(features, lengths.tolist(), frames.tolist(), strict=True):
        torch.testing.assert_close(row[:count], whole(fbank, noise(length)), atol=1e-5, rtol=0)
        assert not row[count:].any()


def test_frames_see_only_their_declared_window() -> None:
    for config in CONFIGS:
        fbank = Fbank(config)
        waveform = noise(20 * fbank.stride).requires_grad_()
        whole(fbank, waveform)[10].sum().backward()
        assert waveform.grad is not None
        seen = waveform.grad.nonzero().flatten()
        start, stop = 10 * fbank.stride - fbank.left, 11 * fbank.stride + fbank.right
        assert start <= int(seen.min()) <= start + 1  # the window is zero at both ends
        assert stop - 2 <= int(seen.max()) < stop


def test_silence_is_the_floor() -> None:
    features = whole(Fbank(FbankConfig()), torch.zeros(16_000))
    torch.testing.assert_close(features, torch.full((100, 80), -15.9424), atol=1e-4, rtol=0)


def test_dither_is_for_training_and_comes_from_the_generator() -> None:
    fbank, lengths = Fbank(FbankConfig(dither=1e-4)), torch.tensor([4000])
    draws = [fbank(torch.zeros(1, 4000), lengths, torch.Generator().manual_seed(seed))[0] for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert float(fbank.eval()(torch.zeros(1, 4000), lengths)[0].max()) < -15.9


def test_precision_does_not_follow_autocast() -> None:
    fbank, waveform = Fbank(FbankConfig()), noise(4000)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = whole(fbank, waveform)
    assert torch.equal(features, whole(fbank, waveform))
    half, _ = fbank(waveform.half()[None], torch.tensor([4000]))
    assert half.dtype == torch.float32
    assert half.isfinite().all()


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"num_mels": 0}, "features.num_mels=0"),
        ({"window_ms": 5.0}, "features.window_ms=5.0"),
        ({"shift_ms": 0.01}, "features.shift_ms=0.01"),
        ({"low_hz": 9000.0}, "features.low_hz=9000.0"),
        ({"dither": -1.0}, "features.dither=-1.0"),
        ({"sample_rate_hz": 0}, "features.sample_rate_hz=0"),
    ],
)
def test_impossible_values_name_their_key(values: dict[str, float], key: str) -> None:
    with pytest.raises(ValueError, match=f"{key} .*must"):
        FbankConfig(**values)  # pyright: ignore[reportArgumentType]


def test_bands_without_a_bin_are_refused() -> None:
    with pytest.raises(ValueError, match="features.num_mels=200 leaves bands without"):
        Fbank(FbankConfig(num_mels=200))
