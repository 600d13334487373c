"""Fixtures that every room's tests share."""

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # the tests' tensors are small, and tests may run side by side


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real recordings in their upstream layout, which lie beside the repository where there are any."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real recordings at {folder}")
    return folder
