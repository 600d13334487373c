"""A process finds its place from torchrun's or Slurm's variables."""

import pytest

from chunkwise.training.place import Place, found_place


def test_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}
    for name, value in {**values, "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    assert found_place() == Place(5, 1, 8, 4, "env://")


def test_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "SLURM_STEP_NUM_TASKS": "8",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NODELIST": "gpu[07-08]",
        "SLURM_PROCID": "6",
        "SLURM_LOCALID": "2",
        "SLURM_JOB_ID": "40003",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert found_place() == Place(6, 2, 8, 4, "tcp://gpu07:20003")


def test_a_batch_script_outside_any_step_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "8")
    monkeypatch.setenv("SLURM_PROCID", "0")
    assert found_place() == Place()
