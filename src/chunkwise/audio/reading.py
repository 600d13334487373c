"""Reading audio files: one channel of floats in [-1, 1], or one sentence that says what is wrong."""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile
import torch
from jaxtyping import Float
from torch import Tensor

BLOCK_FRAMES = 1 << 20
"""Read in blocks, because a piped file may not know its own length."""

UNKNOWN_LENGTH = 1 << 48
"""A FLAC from a pipe declares a number of samples beyond this."""

STREAMED_SIZE_BYTES = 0x7FFF_0000
"""Programs that write a WAV into a pipe cannot know its size and put a number from here upwards."""


class AudioError(ValueError):
    """A file that cannot be used as audio; the message names the file, what is wrong and what helps.

    Made from these three, or from a whole sentence (as an exception that crosses a process border is).

    >>> str(AudioError("a.wav", "is empty", "download it again"))
    'a.wav is empty; download it again'
    """

    def __init__(self, subject: str | os.PathLike[str], problem: str = "", remedy: str = "") -> None:
        super().__init__(f"{os.fspath(subject)} {problem}; {remedy}" if problem else str(subject))


class EmptyAudioError(AudioError):
    """A file of no bytes or no samples, the usual trace of a copy or a download that failed."""


@dataclass(frozen=True, slots=True)
class AudioInfo:
    """What the header of a readable audio file declares."""

    rate_hz: int
    num_samples: int | None  # per channel; None where the writer, into a pipe, could not know
    num_channels: int


def audio_info(path: str | os.PathLike[str]) -> AudioInfo:
    """The declared rate, length and channels of a file, after the checks that need no decoding.

    A missing file, an empty one, one that is no audio, and a WAV whose header disagrees with the file's size raise
    an `AudioError`.
    """
    _check_file(Path(path))
    with _opened(path) as file:
        return _info(file)


def read_audio(path: str | os.PathLike[str]) -> tuple[Float[Tensor, " samples"], int]:
    """The samples of an audio file, channels averaged, and its sample rate in Hz.

    Integer formats are scaled to [-1, 1]; float files are taken as they are, so values beyond 1 stay.
    A file with a header and no samples gives an empty tensor; non-finite samples are an `AudioError`.
    """
    _check_file(Path(path))
    with _opened(path) as file:
        declared = _info(file).num_samples
        samples = _read_blocks(file)
    if declared is not None and declared != len(samples):
        raise AudioError(path, f"holds {len(samples)} of its {declared} samples", "copy or download it again")
    if not np.isfinite(samples).all():
        first = int(np.flatnonzero(~np.isfinite(samples).all(axis=1))[0])
        raise AudioError(path, f"has a non-finite sample (the first at {first})", "write the file again")
    return torch.from_numpy(samples[:, 0] if samples.shape[1] == 1 else samples.mean(axis=1)), file.samplerate


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[soundfile.SoundFile]:
    try:
        with soundfile.SoundFile(path) as file:
            yield file
    except soundfile.LibsndfileError as error:
        reason = error.error_string.strip().rstrip(".")
        raise AudioError(path, f"is not readable audio ({reason})", "give a WAV, FLAC, OGG or MP3 file") from error


def _info(file: soundfile.SoundFile) -> AudioInfo:
    known = file.frames < UNKNOWN_LENGTH
    return AudioInfo(file.samplerate, file.frames if known else None, file.channels)


def _read_blocks(file: soundfile.SoundFile) -> np.ndarray:
    blocks = [file.read(BLOCK_FRAMES, dtype="float32", always_2d=True)]
    while len(blocks[-1]) == BLOCK_FRAMES:
        blocks.append(file.read(BLOCK_FRAMES, dtype="float32", always_2d=True))
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def _check_file(path: Path) -> None:
    if not path.exists():
        raise AudioError(path, "does not exist", "check the path")
    if not path.is_file():
        raise AudioError(path, "is not a file", "name one audio file")
    if path.stat().st_size == 0:
        raise EmptyAudioError(path, "is empty (0 bytes)", "copy or download it again")
    with path.open("rb") as file:
        header = file.read(12)
        if header[:4] == b"RIFF" and header[8:] == b"WAVE":
            _check_chunks(file, path)


def _check_chunks(file: BinaryIO, path: Path) -> None:
    """Refuse a WAV whose header and size disagree: libsndfile would silently return a part of it."""
    size = path.stat().st_size
    position, audio_seen = 12, False
    while size - position >= 8:
        file.seek(position)
        name, length = struct.unpack("<4sI", file.read(8))
        if not all(32 <= byte < 127 for byte in name):
            if audio_seen:
                raise AudioError(path, "has audio beyond the size in its WAV header", "convert it with sox or ffmpeg")
            return  # not a list of chunks: libsndfile decides
        if name == b"data" and length >= STREAMED_SIZE_BYTES:
            return
        position += 8 + length
        if name == b"data" and position > size:
            missing = position - size
            raise AudioError(path, f"ends {missing} bytes before its WAV header says", "copy or download it again")
        audio_seen = audio_seen or name == b"data"
        position += length % 2  # chunks begin at even places
