"""A small prepared corpus and a small trained run, which the tests of the commands share."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from console import command

TINY = [
    "experiment=digits_streaming",
    "runtime=cpu",
    "runtime.threads=1",
    "data.train_utterances=24",
    "data.dev_utterances=4",
    "data.test_utterances=9",
    "data.max_batch_s=15",
    "data.num_workers=0",
    "encoder.d_model=32",
    "encoder.num_layers=1",
    "encoder.num_heads=2",
    "encoder.feed_forward_dim=64",
    "encoder.kernel_size=7",
    "encoder.subsampling_channels=8",
    "predictor.dim=32",
    "joiner.dim=32",
    "schedule.warmup_steps=4",
    "training.max_steps=6",
    "training.validate_every=3",
    "training.save_every=3",
    "logger=none",
]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all runs of these tests prepare their data."""
    return tmp_path_factory.mktemp("prepared")


@pytest.fixture(scope="session")
def tiny(prepared: Path) -> Sequence[str]:
    """The overrides of a run that takes a second."""
    return [*TINY, f"data.prepared_dir='{prepared}'"]


@pytest.fixture(scope="session")
def run_folder(tiny: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, trained by the console script in a folder with blanks and accents."""
    folder = tmp_path_factory.mktemp("a run, é=1")
    done = command("train", *tiny, f"hydra.run.dir='{folder}'", "logger=wandb", LC_ALL="C")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
