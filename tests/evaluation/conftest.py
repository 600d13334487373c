"""A tiny random recogniser, short recordings, and ranks that are threads."""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import soundfile
import torch
from evaluation_workers import tiny_recogniser
from jaxtyping import Int
from lhotse import CutSet, MonoCut, Recording, SupervisionSegment
from torch import Tensor

from chunkwise.evaluation.recogniser import Recogniser
from chunkwise.text.tokenizer import TokenizerConfig, TokenizerKind, train_tokenizer

RATE_HZ = 16_000
TEXTS = ("one two three", "two", "five four nine", "seven eight", "")

MakeRecogniser = Callable[[], Recogniser]
MakeCuts = Callable[[list[int], list[str]], CutSet]
"""Cuts of so many samples each, with these transcripts; their ids are u00, u01, ..."""


@pytest.fixture
def make_recogniser(tmp_path: Path) -> MakeRecogniser:
    """Builds equal recognisers, each with a model of its own."""
    config = TokenizerConfig(kind=TokenizerKind.char, vocab_size=None)
    tokenizer = train_tokenizer([text for text in TEXTS if text], config, tmp_path / "tokenizer.model")

    return lambda: tiny_recogniser(tokenizer)


@pytest.fixture
def recogniser(make_recogniser: MakeRecogniser) -> Recogniser:
    """One tiny recogniser."""
    return make_recogniser()


@pytest.fixture
def make_cuts(tmp_path: Path) -> MakeCuts:
    """Makes recordings of noise bursts, the same every time."""

    def make(samples: list[int], texts: list[str]) -> CutSet:
        generator = torch.Generator().manual_seed(1)
        cuts = []
        for index, (count, text) in enumerate(zip(samples, texts, strict=True)):
            name = f"u{index:02d}"
            path = tmp_path / f"{name}.wav"
            envelope = 0.3 * torch.sin(torch.arange(count) / 900).abs()
            soundfile.write(path, (envelope * torch.randn(count, generator=generator)).clamp(-1, 1).numpy(), RATE_HZ)
            recording = Recording.from_file(path, recording_id=name)
            spoken = SupervisionSegment(name, name, 0.0, recording.duration, text=text, speaker="s")
            cuts.append(MonoCut(name, 0.0, recording.duration, 0, supervisions=[spoken], recording=recording))
        return CutSet.from_cuts(cuts)

    return make


@dataclass
class Meeting:
    """Where ranks that are threads exchange values."""

    size: int
    barrier: threading.Barrier = field(init=False)
    values: list[object] = field(init=False)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.size, timeout=20)
        self.values = [None] * self.size

    def exchange(self, rank: int, value: object) -> list[object]:
        """Everybody's values."""
        self.values[rank] = value
        self.barrier.wait()
        values = list(self.values)
        self.barrier.wait()
        return values


@dataclass
class ThreadWorld:
    """One rank of a world whose ranks are threads."""

    rank: int
    meeting: Meeting
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def size(self) -> int:
        return self.meeting.size

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def sum_counts(self, counts: Int[Tensor, " counts"]) -> Int[Tensor, " counts"]:
        assert counts.dtype == torch.int64
        return torch.stack([torch.as_tensor(other) for other in self.meeting.exchange(self.rank, counts)]).sum(0)

    def gather_texts(self, texts: Sequence[str]) -> list[str] | None:
        everything = self.meeting.exchange(self.rank, list(texts))
        return [text for part in everything if isinstance(part, list) for text in part] if self.is_main else None

    def share_text(self, text: str) -> str:
        shared = self.meeting.exchange(self.rank, text)[0]
        assert isinstance(shared, str)
        return shared

    def deal(self, count: int) -> Iterator[int]:
        pile = self.meeting.exchange(self.rank, itertools.count())[0]
        assert isinstance(pile, itertools.count)
        while (number := next(pile)) < count:  # atomic, as CPython's built-in iterators are
            yield number

    def sign(self, doing: str) -> None:
        """Nobody asks a thread."""

    def barrier(self, purpose: str) -> None:
        self.meeting.exchange(self.rank, None)


RunRanks = Callable[[int, Callable[[ThreadWorld], object]], list[object]]
"""Calls the function on each rank of a world of that size and lists what the ranks return."""


@pytest.fixture
def run_ranks() -> RunRanks:
    """Runs ranks as threads."""

    def run(size: int, function: Callable[[ThreadWorld], object]) -> list[object]:
        meeting = Meeting(size)
        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(function, [ThreadWorld(rank, meeting) for rank in range(size)]))

    return run
