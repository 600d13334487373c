"""Log-mel filter-bank features in Kaldi's convention, whole utterances and streams by one computation."""

import math
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

PRE_EMPHASIS = 0.97
POVEY_EXPONENT = 0.85
ENERGY_FLOOR = torch.finfo(torch.float32).eps
BLOCK_FRAMES = 512
"""Frames that are transformed at once: they fit into a core's cache."""

Count = TypeVar("Count", int, Tensor)


@dataclass(frozen=True, slots=True, kw_only=True)
class FbankConfig:
    """Log-mel filter-bank features in Kaldi's convention (povey window, no snipped edges)."""

    sample_rate_hz: int = 16_000
    num_mels: int = 80
    window_ms: float = 25.0
    shift_ms: float = 10.0
    low_hz: float = 20.0
    high_hz: float = -400.0  # zero or less: counted down from the Nyquist frequency
    dither: float = 0.0  # noise added to each sample, in training only

    def __post_init__(self) -> None:
        if self.sample_rate_hz < 1:
            raise ValueError(f"features.sample_rate_hz={self.sample_rate_hz} must be positive; try 16000")
        if self.num_mels < 1:
            raise ValueError(f"features.num_mels={self.num_mels} must be at least 1; try 80")
        if self.sample_rate_hz * self.shift_ms < 1000:
            raise ValueError(f"features.shift_ms={self.shift_ms} must be at least one sample; try 10")
        if self.window_ms < self.shift_ms:
            raise ValueError(f"features.window_ms={self.window_ms} must not be below shift_ms={self.shift_ms}; try 25")
        if not 0 <= self.low_hz < self.upper_hz <= self.sample_rate_hz / 2:
            raise ValueError(
                f"features.low_hz={self.low_hz} and high_hz={self.high_hz} must leave a band between 0 and "
                f"{self.sample_rate_hz / 2} Hz; try 20 and -400"
            )
        if self.dither < 0:
            raise ValueError(f"features.dither={self.dither} must not be negative; try 0")

    @property
    def upper_hz(self) -> float:
        """The upper edge of the highest mel band."""
        return self.high_hz if self.high_hz > 0 else self.sample_rate_hz / 2 + self.high_hz


@dataclass(frozen=True, slots=True)
class FbankState:
    """The samples that later frames still need."""

    pending: Float[Tensor, "batch samples"]
    received: int  # samples in, since the start
    emitted: int  # frames out, since the start
    finished: bool = False


class Fbank(nn.Module):
    """Log energies of mel bands, one frame per shift.

    Frame `t` is centred on its block of `stride` samples: it sees `left` samples before the block and `right` after
    it. At the utterance's own edges the signal is mirrored, so padding is never seen. Each window loses its mean, is
    pre-emphasised and weighted, and its power spectrum is summed in overlapping triangles on the mel scale.

    Reference: Povey et al. 2011, "The Kaldi speech recognition toolkit"; equal to kaldi-native-fbank on
    waveforms in [-1, 1] with `snip_edges` false.

    >>> features, lengths = Fbank(FbankConfig())(torch.zeros(1, 16_000), torch.tensor([16_000]))
    >>> features.shape, lengths.tolist()
    (torch.Size([1, 100, 80]), [100])
    """

    window: Tensor
    mel_weights: Tensor

    def __init__(self, config: FbankConfig) -> None:
        super().__init__()
        self.config = config
        self.stride = int(config.sample_rate_hz * config.shift_ms / 1000)
        self.window_samples = int(config.sample_rate_hz * config.window_ms / 1000)
        self.left = self.window_samples // 2 - self.stride // 2
        self.right = self.window_samples - self.stride - self.left
        self.fft_samples = 1 << (self.window_samples - 1).bit_length()
        self.register_buffer("window", povey_window(self.window_samples), persistent=False)
        self.register_buffer("mel_weights", mel_triangles(config, self.fft_samples), persistent=False)

    def num_frames(self, num_samples: Count) -> Count:
        """How many frames so many samples give."""
        return (num_samples + self.stride // 2) // self.stride

    def forward(
        self,
        waveforms: Float[Tensor, "batch samples"],
        lengths: Int[Tensor, " batch"],
        generator: torch.Generator | None = None,
    ) -> tuple[Float[Tensor, "batch frames mels"], Int[Tensor, " batch"]]:
        """The features of whole utterances, zero beyond each one's frames; `generator` draws the dither of training."""
        frame_lengths = self.num_frames(lengths)
        frames = int(frame_lengths.max()) if len(lengths) else 0
        waveforms = _at_least_float32(waveforms)
        if self.training and self.config.dither > 0:
            noise = torch.empty_like(waveforms).normal_(generator=generator)
            waveforms = waveforms + self.config.dither * noise
        features = self._log_mel(self._mirrored(waveforms, lengths), frames)
        valid = torch.arange(frames, device=lengths.device) < frame_lengths[:, None]
        return torch.where(valid[:, :, None], features, 0.0), frame_lengths

    def initial_state(self, batch: int = 1) -> FbankState:
        """The state before the first sample."""
        return FbankState(self.window.new_zeros(batch, 0), received=0, emitted=0)

    def stream(
        self, piece: Float[Tensor, "batch samples"], state: FbankState
    ) -> tuple[Float[Tensor, "batch frames mels"], FbankState]:
        """The frames that `piece` completes; it may have any number of samples, the same for every row."""
        if state.finished:
            raise ValueError("this stream was flushed; start a new one from initial_state()")
        piece = _at_least_float32(piece)
        pending = torch.cat([state.pending.to(piece), piece], dim=1)
        received = state.received + piece.shape[1]
        complete = max(0, (received - self.right) // self.stride)
        ready = complete - state.emitted
        if ready == 0:
            return self._no_frames(piece), replace(state, pending=pending, received=received)
        features = self._log_mel(self._with_left_edge(pending, state), ready)
        needed_from = max(0, complete * self.stride - self.left - 1)  # an odd window mirrors one sample further back
        pending = pending[:, pending.shape[1] - (received - needed_from) :]
        return features, FbankState(pending, received, complete)

    def flush(self, state: FbankState) -> tuple[Float[Tensor, "batch frames mels"], FbankState]:
        """The frames whose windows reach over the end; a second flush gives none."""
        ended = FbankState(state.pending[:, :0], state.received, self.num_frames(state.received), finished=True)
        missing = ended.emitted - state.emitted
        if state.finished or missing == 0:
            return self._no_frames(state.pending), ended
        if state.emitted == 0:
            lengths = torch.full((len(state.pending),), state.received, device=state.pending.device)
            return self._log_mel(self._mirrored(state.pending, lengths), missing), ended
        both = torch.cat([state.pending, state.pending.flip(1)], dim=1)
        return self._log_mel(self._with_left_edge(both, state), missing), ended

    def _no_frames(self, like: Float[Tensor, "batch samples"]) -> Float[Tensor, "batch 0 mels"]:
        return like.new_zeros(len(like), 0, self.config.num_mels)

    def _with_left_edge(
        self, pending: Float[Tensor, "batch samples"], state: FbankState
    ) -> Float[Tensor, "batch extended"]:
        """`pending` from the first sample of the next frame's window on."""
        start = state.emitted * self.stride - self.left
        if start < 0:
            return torch.cat([pending[:, :-start].flip(1), pending], dim=1)
        return pending[:, start - max(0, start - 1) :]

    def _mirrored(
        self, waveforms: Float[Tensor, "batch samples"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch extended"]:
        """The waveforms with both edges, 0 and each row's own length, continued by their mirror image."""
        beyond = self.right + self.stride // 2  # how far the last window may reach over the end
        samples = torch.arange(waveforms.shape[1], device=waveforms.device)
        known = torch.where(samples < lengths[:, None], waveforms, 0.0)
        if waveforms.shape[1] == 0:
            return known.new_zeros(len(known), self.left + beyond)
        before = torch.arange(-self.left, 0, device=waveforms.device).expand(len(known), -1)
        after = lengths[:, None] + torch.arange(beyond, device=waveforms.device)
        place = torch.cat([before, after], dim=1)
        length = lengths[:, None].clamp(min=1)
        mirror = place % (2 * length)  # the mirrored signal repeats itself: very short ones more than once
        values = known.gather(1, torch.minimum(mirror, 2 * length - 1 - mirror))
        return nn.functional.pad(known, (self.left, beyond)).scatter(1, place + self.left, values)

    def _log_mel(self, extended: Float[Tensor, "batch extended"], frames: int) -> Float[Tensor, "batch frames mels"]:
        """The features of the first `frames` windows of a signal; the only place where features are computed."""
        if frames == 0:
            return self._no_frames(extended)
        windows = extended.unfold(1, self.window_samples, self.stride)[:, :frames]
        with torch.autocast(extended.device.type, enabled=False):
            step = max(1, BLOCK_FRAMES // len(windows)) if len(windows) else frames
            return torch.cat([self._log_mel_block(block) for block in windows.split(step, dim=1)], dim=1)

    def _log_mel_block(self, windows: Float[Tensor, "batch frames window"]) -> Float[Tensor, "batch frames mels"]:
        centred = windows - windows.mean(-1, keepdim=True)
        # The window's first weight is zero, so what pre-emphasis makes of its first sample does not matter.
        weighted = (centred[..., 1:] - PRE_EMPHASIS * centred[..., :-1]) * self.window[1:].to(windows)
        spectrum = torch.fft.rfft(nn.functional.pad(weighted, (1, self.fft_samples - self.window_samples)))
        power = spectrum.real.square() + spectrum.imag.square()
        return (power @ self.mel_weights.to(power)).clamp(min=ENERGY_FLOOR).log()


def povey_window(samples: int) -> Float[Tensor, " samples"]:
    """Kaldi's window: a Hann window to the power 0.85, zero at both ends."""
    return torch.hann_window(samples, periodic=False, dtype=torch.float64).pow(POVEY_EXPONENT).float()


def mel_triangles(config: FbankConfig, fft_samples: int) -> Float[Tensor, "bins mels"]:
    """How much each bin of the power spectrum counts for each mel band: triangles, even on the mel scale."""
    bins_hz = torch.arange(fft_samples // 2 + 1, dtype=torch.float64) * config.sample_rate_hz / fft_samples
    bins = 1127 * torch.log1p(bins_hz / 700)[:, None]
    low, high = (1127 * math.log1p(hertz / 700) for hertz in (config.low_hz, config.upper_hz))
    width = (high - low) / (config.num_mels + 1)
    left = low + width * torch.arange(config.num_mels, dtype=torch.float64)
    weights = torch.minimum((bins - left) / width, (left + 2 * width - bins) / width).clamp(min=0)
    weights[-1] = 0  # Kaldi leaves out the Nyquist bin
    if bool((weights.sum(0) == 0).any()):
        raise ValueError(
            f"features.num_mels={config.num_mels} leaves bands without a frequency bin for windows of "
            f"{config.window_ms} ms; try fewer bands or a longer window"
        )
    return weights.float()


def _at_least_float32(waveform: Float[Tensor, "batch samples"]) -> Float[Tensor, "batch samples"]:
    return waveform if waveform.dtype == torch.float64 else waveform.float()
