"""Fixtures that every room's tests share."""

import multiprocessing
import os
from multiprocessing import forkserver
from pathlib import Path

import pytest
import torch

from chunkwise.training.launching import FIRST_STEP

os.environ["OMP_NUM_THREADS"] = "1"  # the tests' tensors are small, and tests may run side by side
torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _server() -> None:
    """Let the server of which commands and ranks are forks import everything, once and beside the first tests."""
    commands = ("prepare", "train", "evaluate", "stream", "dependencies")
    multiprocessing.set_forkserver_preload([*(f"chunkwise.cli.{name}" for name in commands), FIRST_STEP])
    forkserver.ensure_running()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real recordings in their upstream layout, which lie beside the repository where there are any."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real recordings at {folder}")
    return folder
