"""Changing the sample rate: a whole waveform, or the same samples piece by piece."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
import torchaudio
from jaxtyping import Float
from torch import Tensor

LOWPASS_WIDTH = 6
ROLLOFF = 0.99
MAX_KERNEL_VALUES = 1 << 26


def resample(waveform: Float[Tensor, "*batch samples"], rate_hz: int, target_hz: int) -> Float[Tensor, "*batch out"]:
    """The waveform at `target_hz`: `ceil(samples * target_hz / rate_hz)` samples of a windowed-sinc interpolation.

    Reference: Smith, "Digital Audio Resampling", https://ccrma.stanford.edu/~jos/resample/.

    >>> resample(torch.zeros(441), 44_100, 16_000).shape
    torch.Size([160])
    """
    if rate_hz == target_hz or waveform.shape[-1] == 0:
        return waveform
    kernel = _kernel(rate_hz, target_hz, waveform.dtype).to(waveform.device)
    with convolutions_of_any_length():
        return kernel(waveform)


@contextmanager
def convolutions_of_any_length() -> Iterator[None]:
    """A block without oneDNN, which compiles a convolution anew for each length: five times the cost of running it."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


@lru_cache(maxsize=32)
def _kernel(rate_hz: int, target_hz: int, dtype: torch.dtype) -> torchaudio.transforms.Resample:
    divisor = math.gcd(rate_hz, target_hz)
    if (rate_hz // divisor) * (target_hz // divisor) > MAX_KERNEL_VALUES:
        raise ValueError(
            f"a sample rate of {rate_hz} Hz has no short ratio to {target_hz} Hz; "
            f"convert the audio to {target_hz} Hz with sox or ffmpeg"
        )
    precise = torch.float64 if dtype == torch.float64 else None
    return torchaudio.transforms.Resample(rate_hz, target_hz, "sinc_interp_hann", LOWPASS_WIDTH, ROLLOFF, dtype=precise)


@dataclass(frozen=True, slots=True)
class ResamplerState:
    """What a streaming resampler still needs of the past."""

    pending: Float[Tensor, "batch samples"]  # whole blocks of left context, then what waits for its right context
    context_blocks: int  # how many blocks of `pending` are left context only
    received: int  # samples in, since the start
    emitted: int  # samples out, since the start


class Resampler:
    """A resampler that takes audio in pieces of any size and returns what `resample` gives for the whole.

    Both rates divided by their common divisor form a block: `stride` samples in, `block` samples out. An output
    depends on `left` samples before its block and `right` after it.
    """

    def __init__(self, rate_hz: int, target_hz: int) -> None:
        self.rate_hz, self.target_hz = rate_hz, target_hz
        divisor = math.gcd(rate_hz, target_hz)
        self.stride, self.block = rate_hz // divisor, target_hz // divisor
        width = math.ceil(LOWPASS_WIDTH * self.stride / (min(self.stride, self.block) * ROLLOFF))
        self.left = self.right = 0 if rate_hz == target_hz else width
        self._context = math.ceil(self.left / self.stride)  # blocks on either side

    def initial_state(self, batch: int = 1) -> ResamplerState:
        """The state before the first piece."""
        return ResamplerState(torch.zeros(batch, 0), 0, 0, 0)

    def stream(
        self, piece: Float[Tensor, "batch samples"], state: ResamplerState
    ) -> tuple[Float[Tensor, "batch out"], ResamplerState]:
        """The samples that `piece` completes."""
        pending = torch.cat([state.pending.to(piece), piece], dim=1)
        received = state.received + piece.shape[1]
        ready = pending.shape[1] // self.stride - self._context - state.context_blocks
        if ready <= 0:
            return piece[:, :0], replace(state, pending=pending, received=received)
        resampled = resample(pending, self.rate_hz, self.target_hz)
        start = state.context_blocks * self.block
        output = resampled[:, start : start + ready * self.block]
        done = state.context_blocks + ready
        context = min(done, self._context)
        kept = pending[:, (done - context) * self.stride :]
        return output, ResamplerState(kept, context, received, state.emitted + output.shape[1])

    def flush(self, state: ResamplerState) -> tuple[Float[Tensor, "batch out"], ResamplerState]:
        """The last samples, as if silence followed."""
        missing = math.ceil(state.received * self.block / self.stride) - state.emitted
        start = state.context_blocks * self.block
        output = resample(state.pending, self.rate_hz, self.target_hz)[:, start : start + missing]
        empty = state.pending[:, :0]
        return output, ResamplerState(empty, 0, state.received, state.emitted + missing)
