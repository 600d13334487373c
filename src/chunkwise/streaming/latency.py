"""How late a stream's results are: integer counts that add up over utterances and ranks, and what follows from them."""

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

import torch

from chunkwise.audio.fbank import Fbank
from chunkwise.models.context import ChunkContext
from chunkwise.models.transducer import Transducer
from chunkwise.streaming.session import Session
from chunkwise.typing import Seconds


class Delays:
    """Delays counted by the microsecond, so that the quantiles of a whole follow from the counts of its parts.

    >>> delays = Delays()
    >>> delays.add([-40, 120, 130, 500])
    >>> delays.quantile_ms(0.5), delays.quantile_ms(0.99), delays.mean_ms
    (120.0, 500.0, 177.5)
    """

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts = Counter(counts or {})

    def add(self, delays_ms: Iterable[float]) -> None:
        """Count delays, in milliseconds."""
        self.counts.update(round(1000 * delay) for delay in delays_ms)

    @property
    def mean_ms(self) -> float | None:
        """The mean; `None` of nothing."""
        total = self.counts.total()
        return sum(delay * count for delay, count in self.counts.items()) / 1000 / total if total else None

    def quantile_ms(self, share: float) -> float | None:
        """The smallest delay that at least this share of them do not exceed; `None` of nothing."""
        missing = share * self.counts.total()
        for delay, count in sorted(self.counts.items()):
            missing -= count
            if missing <= 0:
                return delay / 1000
        return None

    def summary(self) -> dict[str, float | int | None]:
        """Count, mean and quantiles, in milliseconds."""
        mean = self.mean_ms
        return {
            "count": self.counts.total(),
            "mean": None if mean is None else round(mean, 3),
            **{f"p{percent}": self.quantile_ms(percent / 100) for percent in (50, 90, 99)},
        }


@dataclass(frozen=True, slots=True)
class Latency:
    """How late the results of streams were; every field but `compute` is the same on every machine.

    Delays of tokens count what the algorithm waits for, in time of the audio; the computing comes on top. Where
    the corpus does not tell when words were said, the first begins and the last ends with the audio.
    """

    compute: Delays = field(default_factory=Delays)  # of a chunk: features, encoder and search of all its streams
    first_token: Delays = field(default_factory=Delays)  # known, after the first word began
    last_token: Delays = field(default_factory=Delays)  # known, after the last word ended
    word: Delays = field(default_factory=Delays)  # known, after the word ended; right words only
    emission: Delays = field(default_factory=Delays)  # emitted by its frame, after the word ended; right words only

    def to_text(self) -> str:
        """The counts as JSON, to be gathered from other ranks."""
        return json.dumps({f.name: dict(getattr(self, f.name).counts) for f in fields(self)})

    def include(self, other: "Latency") -> None:
        """Add the counts of other streams."""
        for f in fields(self):
            getattr(self, f.name).counts.update(getattr(other, f.name).counts)

    @classmethod
    def merged(cls, texts: Iterable[str]) -> "Latency":
        """The counts of several ranks together."""
        whole = cls()
        for text in texts:
            for name, counts in json.loads(text).items():
                getattr(whole, name).counts.update({int(delay): count for delay, count in counts.items()})
        return whole

    def summary(self) -> dict[str, dict[str, float | int | None]]:
        """Count, mean and quantiles of each kind, in milliseconds."""
        return {f"{f.name}_ms": getattr(self, f.name).summary() for f in fields(self)}


@dataclass(frozen=True, slots=True)
class EmissionTimes:
    """When the tokens of an utterance came, in milliseconds of its audio."""

    emitted_ms: list[float]  # the end of the encoder frame that emitted each token
    available_ms: list[float]  # how much audio had to be heard before each token could be known


def emission_times(frames: list[int], duration_s: Seconds, fbank: Fbank, context: ChunkContext) -> EmissionTimes:
    """The times of tokens that were emitted at `frames` (encoder frames, from 0).

    A token can be known when its chunk is complete, or when the utterance ends: it pays the rest of its chunk
    and the features' look-ahead. The computing time comes on top.
    """
    rate_hz = fbank.config.sample_rate_hz
    frame_ms = 1000 * Transducer.frames_per_encoder_frame * fbank.stride / rate_hz
    duration_ms = 1000 * duration_s
    emitted = [(frame + 1) * frame_ms for frame in frames]
    chunk = context.chunk_frames
    if chunk is None:
        return EmissionTimes(emitted, [duration_ms] * len(frames))
    lookahead = 1000 * fbank.right / rate_hz
    borders = [(frame // chunk + 1) * chunk * frame_ms + lookahead for frame in frames]
    return EmissionTimes(emitted, [min(border, duration_ms) for border in borders])


def lookahead_samples(fbank: Fbank, context: ChunkContext) -> int | None:
    """The algorithmic look-ahead: samples after the start of a chunk that its first encoder frame needs.

    `None` in full context, where the whole utterance is needed. It is the chunk itself plus the half
    window of its last feature frame, which reaches past the chunk's end; subsampling adds nothing.
    """
    if context.chunk_frames is None:
        return None
    return context.chunk_frames * Transducer.frames_per_encoder_frame * fbank.stride + fbank.right


def lookahead_ms(fbank: Fbank, context: ChunkContext) -> float | None:
    """`lookahead_samples` in milliseconds."""
    samples = lookahead_samples(fbank, context)
    return None if samples is None else 1000.0 * samples / fbank.config.sample_rate_hz


def measured_lookahead_samples(session: Session) -> int | None:
    """After how many samples the first chunk can run, found by feeding the session ever other numbers of them."""
    if session.chunk_features is None:
        return None
    rate_hz = session.fbank.config.sample_rate_hz
    silence = torch.zeros(2 * (session.chunk_features + 1) * session.fbank.stride + rate_hz)

    def runs(samples: int) -> bool:
        session.reset()
        session.receive(silence[:samples].to(session.fbank.window.device))
        return session.ready > 0

    found = bisect_left(range(len(silence)), True, key=runs)
    session.reset()
    return found
