"""A small prepared corpus and a small trained run, which the tests of the commands share."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

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


def command(
    name: str, *arguments: str, cwd: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run a console script as a user would, without a terminal, and with an end."""
    variables = {k: v for k, v in os.environ.items() if k not in ("WANDB_API_KEY", "HYDRA_FULL_ERROR")}
    return subprocess.run(
        [sys.executable, "-m", f"chunkwise.cli.{name}", *arguments],
        cwd=cwd, env=variables | {"OMP_NUM_THREADS": "1"} | environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


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
