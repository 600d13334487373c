"""A run that is stopped and resumed is the uninterrupted run, bit for bit."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir

from chunkwise.cli import train
from chunkwise.config import TrainConfig, conf_dir, read, register


def trained(folder: Path, overrides: Sequence[str], *more: str) -> dict:
    register()
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        config = read(TrainConfig, compose("train", [*overrides, *more]))
    train.run(config, folder, "test")
    return torch.load(folder / "checkpoints" / "last.pt")


def difference(one: dict, other: dict) -> float:
    return max(float((one["model"][name] - other["model"][name]).abs().max()) for name in one["model"])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_resumed_run_is_the_uninterrupted_one(tiny: Sequence[str], tmp_path: Path, workers: int) -> None:
    settings = [*tiny, f"data.num_workers={workers}", "augment.speed_factors=[0.9,1.0,1.1]", "encoder.dropout=0.1"]
    whole = trained(tmp_path / "whole", settings)
    trained(tmp_path / "cut", settings, "training.stop_at=2")
    resumed = trained(tmp_path / "cut", settings, "resume=true")
    assert resumed["step"] == whole["step"] == 6
    assert difference(whole, resumed) == 0.0


def test_two_processes_train_as_one_with_the_joined_batches(tiny: Sequence[str], tmp_path: Path) -> None:
    settings = [*tiny, "training.validate_every=0", "training.max_steps=3", "data.max_batch_s=8"]
    two = trained(tmp_path / "two", settings, "runtime.processes=2")
    one = trained(tmp_path / "one", settings, "training.accumulate=2")
    assert difference(two, one) <= 1e-5


def test_a_second_run_into_the_same_folder_is_refused(run_folder: Path, tiny: Sequence[str]) -> None:
    with pytest.raises(ValueError, match="resume=true"):
        trained(run_folder, tiny)


def test_a_finished_run_says_so(run_folder: Path, tiny: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    before = (run_folder / "checkpoints" / "last.pt").read_bytes()
    trained(run_folder, tiny, "resume=true")
    assert "nothing left to train" in capsys.readouterr().out
    assert (run_folder / "checkpoints" / "last.pt").read_bytes() == before
