"""Small corpora in the folder layouts of the real ones."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem


def tone(path: Path, seconds: float = 0.4, rate_hz: int = 8000, channels: int = 1) -> Path:
    """A tone of 440 Hz in faint noise, written as a 16-bit file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    time_s = np.arange(round(seconds * rate_hz)) / rate_hz
    noise = np.random.default_rng(list(path.name.encode())).standard_normal(len(time_s))
    samples = 0.2 * np.sin(2 * np.pi * 440 * time_s) + 0.01 * noise
    soundfile.write(path, np.stack([samples] * channels, axis=1), rate_hz, subtype="PCM_16")
    return path


@pytest.fixture
def write_tone() -> Callable[..., Path]:
    return tone


@pytest.fixture
def words_of() -> Callable[[Cut], list[AlignmentItem]]:
    """The words of an utterance, with their times."""

    def words(cut: Cut) -> list[AlignmentItem]:
        alignment = cut.supervisions[0].alignment
        assert alignment is not None, cut.id
        return alignment["word"]

    return words


@pytest.fixture(scope="session")
def small_fsdd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three speakers, five digits, ten takes: take n lasts 0.2 + n / 100 seconds. To be read only."""
    root = tmp_path_factory.mktemp("fsdd")
    for speaker in ("ann", "bo", "cy"):
        for digit in range(5):
            for index in range(10):
                tone(root / "recordings" / f"{digit}_{speaker}_{index}.wav", seconds=0.2 + index / 100)
    return root


@pytest.fixture
def own_fsdd(small_fsdd: Path, tmp_path: Path) -> Path:
    """A copy of the small corpus that a test may spoil."""
    return shutil.copytree(small_fsdd, tmp_path / "fsdd")
