"""Reading gives the samples as they are, or one sentence with the file's name."""

import math
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from chunkwise.audio.fbank import Fbank, FbankConfig
from chunkwise.audio.reading import AudioError, audio_info, read_audio
from chunkwise.audio.resampling import resample


def tone(rate_hz: int = 16_000, seconds: float = 0.5, hertz: float = 440.0) -> np.ndarray:
    return 0.5 * np.sin(2 * math.pi * hertz * np.arange(int(seconds * rate_hz)) / rate_hz)


@pytest.mark.parametrize(
    ("subtype", "tolerance"),
    [("PCM_U8", 1 / 128), ("PCM_16", 4e-5), ("PCM_24", 2e-7), ("PCM_32", 1e-7), ("FLOAT", 6e-8), ("ULAW", 0.02)],
)
def test_every_sample_format_has_the_same_scale(tmp_path: Path, subtype: str, tolerance: float) -> None:
    # pytorch/audio#1376: 24 and 32 bit decoded 256 and 65536 times too loud
    path = tmp_path / "tone.wav"
    soundfile.write(path, tone(), 16_000, subtype=subtype)
    samples, rate_hz = read_audio(path)
    assert rate_hz == 16_000
    assert samples.dtype == torch.float32
    assert np.abs(samples.numpy() - tone()).max() <= tolerance
    fbank, length = Fbank(FbankConfig()), torch.tensor([8000])
    loudest = [
        fbank(waveform[None].float(), length)[0].mean(1).max() for waveform in (samples, torch.from_numpy(tone()))
    ]
    assert abs(loudest[0] - loudest[1]) <= 1e-2


def patch_data_size(path: Path, size: int) -> None:
    content = bytearray(path.read_bytes())
    at = content.index(b"data") + 4
    content[at : at + 4] = struct.pack("<I", size)
    path.write_bytes(content)


@pytest.mark.parametrize("size", [0x7FFFFFFF, 0xFFFFFFFF])
def test_a_streamed_wav_header_is_read_to_the_end(tmp_path: Path, size: int) -> None:
    # lhotse-speech/lhotse#913
    path = tmp_path / "piped.wav"
    soundfile.write(path, tone(), 16_000, subtype="PCM_16")
    patch_data_size(path, size)
    assert len(read_audio(path)[0]) == 8000


@pytest.mark.parametrize(
    ("size", "complaint"), [(0, "beyond the size"), (8000, "beyond the size"), (16_004, "ends 4 ")]
)
def test_a_wav_header_that_disagrees_with_the_file_is_refused(tmp_path: Path, size: int, complaint: str) -> None:
    path = tmp_path / "wrong.wav"
    soundfile.write(path, tone(), 16_000, subtype="PCM_16")
    patch_data_size(path, size)
    for read in (read_audio, audio_info):
        with pytest.raises(AudioError, match=f"wrong.wav .*{complaint}"):
            read(path)


def test_a_wav_with_chunks_after_its_audio_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tagged.wav"
    soundfile.write(path, tone(), 16_000, subtype="PCM_16")
    path.write_bytes(path.read_bytes() + b"LIST" + struct.pack("<I", 5) + b"INFOx\0")
    assert len(read_audio(path)[0]) == 8000


def test_a_truncated_flac_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.flac"
    soundfile.write(path, tone(seconds=4), 16_000)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(AudioError, match=r"cut\.flac"):
        read_audio(path)


@pytest.mark.parametrize(
    ("content", "complaint"), [(None, "does not exist"), (b"", "is empty"), (b"how are you?" * 9, "not readable audio")]
)
def test_what_is_no_audio_is_named_in_one_sentence(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    path = tmp_path / "hello.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AudioError, match=f"hello.wav .*{complaint}") as caught:
        read_audio(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(AudioError, match="is not a file"):
        read_audio(tmp_path)


def test_non_finite_samples_are_refused_and_loud_ones_kept(tmp_path: Path) -> None:
    # flashlight/wav2letter#386
    path = tmp_path / "odd.wav"
    soundfile.write(path, np.array([1.5, -2.0, np.nan, 0.1]), 16_000, subtype="FLOAT")
    with pytest.raises(AudioError, match=r"non-finite sample \(the first at 2\)"):
        read_audio(path)
    soundfile.write(path, np.array([1.5, -2.0]), 16_000, subtype="FLOAT")
    assert read_audio(path)[0].tolist() == [1.5, -2.0]


def test_no_samples_are_an_empty_tensor(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "none.wav", np.zeros(0), 16_000)
    assert read_audio(tmp_path / "none.wav")[0].shape == (0,)


@pytest.mark.parametrize(("rate_hz", "channels"), [(48_000, 2), (44_100, 2), (8000, 1)])
def test_any_rate_and_channels_become_16_khz_mono(tmp_path: Path, rate_hz: int, channels: int) -> None:
    # NVIDIA-NeMo/Megatron-Bridge#4699: stereo resampled along the wrong axis
    path = tmp_path / "tone.flac"
    soundfile.write(path, np.stack([tone(rate_hz, 1.0)] * channels, axis=1), rate_hz)
    samples = resample(*read_audio(path), 16_000)
    assert samples.shape == (16_000,)
    assert int(torch.fft.rfft(samples).abs().argmax()) == 440


def test_paths_may_have_any_characters(tmp_path: Path) -> None:
    # facebookresearch/demucs#257
    path = tmp_path / "音 e\u0301(1)[x],= #.wav"
    soundfile.write(path, tone(), 16_000)
    assert audio_info(path).num_samples == len(read_audio(path)[0]) == 8000
