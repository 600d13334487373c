"""One process is a world; several are found or launched, agree on sums, and end together."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_workers import collectives, draw_slowly, environment, fail, gather_long, idle, meet, run_group

from chunkwise.training.distributed import open_world
from chunkwise.training.launching import launch
from chunkwise.training.roll_call import RankError
from chunkwise.training.runtime import Device, RuntimeConfig

TWO = RuntimeConfig(processes=2, threads=1, device=Device.cpu, timeout_s=60.0)
ALONE = RuntimeConfig(threads=1, device=Device.cpu)


def test_one_process_is_a_world() -> None:
    with open_world(ALONE) as world:
        assert world.is_main
        assert world.size == 1
        assert world.sum_counts(torch.tensor([3])).tolist() == [3]
        assert world.gather_texts(["a", "b"]) == ["a", "b"]
        module = torch.nn.Linear(1, 1)
        assert world.wrap(module) is module
        world.barrier("leaving")


def test_sums_leave_the_callers_tensor_alone() -> None:
    with open_world(ALONE) as world:
        counts = torch.tensor([1, 2])
        assert world.sum_counts(counts) is not counts


def test_two_launched_processes_agree_and_leave_this_process_as_it_was() -> None:
    before, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    result = launch(TWO, collectives, TWO)
    assert result == {
        "counts": [2, 2**41 + 1],
        "values": [1.0, 1.0],
        "ragged": [(0, 3), (1, 3)],
        "texts": ["last", "rank 1", "ein Ää", "last"],
        "gradient": [[3.0, 3.0]],  # the ranks' mean of 1 + 1 and 2 + 2
        "threads": 1,
    }
    assert dict(os.environ) == before
    assert signal.getsignal(signal.SIGTERM) is handler


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_each_number_falls_to_one_rank_and_fewer_to_a_slow_one(size: int) -> None:
    runtime = replace(TWO, processes=size)
    piles = 30, 0, 2
    for count, drawn in zip(piles, launch(runtime, draw_slowly, runtime, piles) or (), strict=True):
        assert sorted(int(line.split()[1]) for line in drawn) == list(range(count))
        if count == 30 and size > 1:
            assert sum(line.startswith("0:") for line in drawn) < 15


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("value", r"^rank 1 of 2: ValueError: data\.root=/nowhere does not exist; give a folder$"),
        ("bug", r"^rank 1 of 2: KeyError: 'missing'"),
        ("kill", r"^rank 1 of 2 was ended by SIGKILL"),
    ],
)
def test_one_failure_ends_all_and_names_the_rank(kind: str, sentence: str) -> None:
    began = time.monotonic()
    with pytest.raises(RankError, match=sentence) as caught:
        launch(TWO, fail, TWO, kind)
    assert caught.value.rank == 1
    assert hasattr(caught.value, "__notes__") == (kind == "bug")
    assert time.monotonic() - began < 45


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize("fault", ["dies", "stops"])
def test_a_rank_that_is_gone_is_named_by_the_others(tmp_path: Path, fault: str, culprit: int) -> None:
    config = replace(TWO, timeout_s=4.0)
    codes = run_group(3, meet, config, tmp_path, fault, culprit, lost=culprit)
    others = [rank for rank in range(3) if rank != culprit]
    assert [codes[rank] for rank in others] == [0, 0]
    for rank in others:
        told = (tmp_path / f"{rank}.txt").read_text(encoding="utf-8")
        assert told.startswith(f"rank {culprit} of 3 "), told
        assert culprit == 0 or "(decoding batch 3 of 7) has ended or hangs" in told, told


def test_a_slow_rank_is_waited_for_and_named_meanwhile(tmp_path: Path) -> None:
    config = replace(TWO, timeout_s=8.0)
    assert run_group(3, meet, config, tmp_path, "dawdles", 1) == [0, 0, 0]
    assert [(tmp_path / f"{rank}.txt").read_text(encoding="utf-8") for rank in range(3)] == ["met"] * 3
    told = [(tmp_path / f"{rank}.err").read_text(encoding="utf-8") for rank in range(3)]
    assert "(adding up the errors) for rank 1 of 3 (decoding batch 3 of 7)" in told[0]
    assert told[1:] == ["", ""]


def test_gathered_texts_take_at_most_twice_their_size() -> None:
    memory = launch(TWO, gather_long, TWO, 400_000)
    assert memory is not None
    assert memory["payload"] == 200 * 400_000
    assert memory["risen"] <= 2 * memory["payload"], memory


def test_each_launch_sees_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKWISE_JOB", "1")
    monkeypatch.setenv("RANK", "7")  # a left-over
    assert launch(TWO, environment, "CHUNKWISE_JOB", "RANK") == ["1", "0"]
    monkeypatch.delenv("CHUNKWISE_JOB")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert launch(TWO, environment, "CHUNKWISE_JOB", "OMP_NUM_THREADS") == [None, "1"]


def test_the_ranks_end_with_a_killed_launcher(tmp_path: Path) -> None:
    launcher = multiprocessing.get_context("forkserver").Process(target=launch, args=(TWO, idle, tmp_path))
    launcher.start()
    _until(lambda: all((tmp_path / rank).exists() and (tmp_path / rank).read_text() for rank in "01"))
    launcher.kill()
    ranks = [int((tmp_path / rank).read_text()) for rank in "01"]
    _until(lambda: not any(Path("/proc", str(pid)).exists() for pid in ranks))


def _until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)


def test_inside_torchrun_nothing_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert launch(TWO, environment, "RANK") == ["3"]


def test_leftovers_of_a_group_are_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with open_world(ALONE) as world:
        assert (world.rank, world.size) == (0, 1)


def test_what_cannot_be_sent_is_refused_before_processes_start() -> None:
    with pytest.raises(ValueError, match="cannot be sent to new processes"):
        launch(TWO, lambda: None)


def test_impossible_runtimes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"runtime\.processes=0"):
        RuntimeConfig(processes=0)
    with pytest.raises(ValueError, match=r"runtime\.threads=0"):
        RuntimeConfig(threads=0)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"runtime\.device=cuda"):
            open_world(RuntimeConfig(device=Device.cuda))
