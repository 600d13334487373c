"""Evaluation by real processes: the same bytes for any number of them, and an end with a name whatever one meets."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from evaluation_workers import Task, evaluate_and_listen, evaluate_as_rank
from lhotse import CutSet
from training_workers import run_group

from chunkwise.evaluation.config import EvalConfig, EvalPath
from chunkwise.training.launching import launch
from chunkwise.training.roll_call import RankError
from chunkwise.training.runtime import Device, RuntimeConfig

LENGTHS = [9_000 + 1_911 * index for index in range(7)]
TEXTS = ["one two three", "two", "five four nine", "", "seven eight", "one", "nine nine"]

MakeCuts = Callable[[list[int], list[str]], CutSet]


@pytest.fixture
def task(make_cuts: MakeCuts, make_recogniser: object, tmp_path: Path) -> Task:
    """Seven utterances, evaluated two at a time."""
    make_cuts(LENGTHS, TEXTS).to_file(tmp_path / "cuts.jsonl.gz")
    (tmp_path / "out").mkdir()
    config = EvalConfig(max_batch_utterances=2)
    return Task(
        tokenizer=tmp_path / "tokenizer.model", cuts=tmp_path / "cuts.jsonl.gz", folder=tmp_path / "out", config=config
    )


def runtime(processes: int, timeout_s: float = 60.0) -> RuntimeConfig:
    return RuntimeConfig(processes=processes, threads=1, device=Device.cpu, timeout_s=timeout_s)


def written(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("metrics.json", "hypotheses.jsonl")}


@pytest.mark.parametrize("path", list(EvalPath))
def test_every_number_of_ranks_writes_the_same_bytes(task: Task, path: EvalPath) -> None:
    task = replace(task, config=replace(task.config, path=path))
    launch(runtime(1), evaluate_as_rank, runtime(1), task)
    alone, names = written(task.folder), sorted(file.name for file in task.folder.iterdir())
    assert b'"hypothesis": ""' not in alone["hypotheses.jsonl"], "an empty text proves nothing"
    for size in (5, 3, 2):  # each finds what a larger world left
        launch(runtime(size), evaluate_as_rank, runtime(size), task)
        assert written(task.folder) == alone
        assert sorted(file.name for file in task.folder.iterdir()) == names


def test_evaluating_twice_in_one_process_gives_the_same_bytes(task: Task) -> None:
    launch(runtime(2), evaluate_as_rank, runtime(2), task)
    once = written(task.folder)
    launch(runtime(2), evaluate_as_rank, runtime(2), task, 2)
    assert written(task.folder) == once


def test_a_file_that_one_rank_cannot_read_is_named_by_all(task: Task) -> None:
    (task.cuts.parent / "u03.wav").write_bytes(b"no audio")
    assert run_group(3, evaluate_and_listen, runtime(3), task) == [0, 0, 0]
    told = {(task.folder / f"{rank}.txt").read_text(encoding="utf-8") for rank in range(3)}
    assert len(told) == 1
    assert "u03" in told.pop()
    with pytest.raises(RankError, match=r"ValueError: .*u03"):
        launch(runtime(2), evaluate_as_rank, runtime(2), task)


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize("fault", ["dies", "stops"])
def test_the_others_end_and_name_the_rank_that_is_gone(task: Task, fault: str, culprit: int) -> None:
    task, others = replace(task, fault=fault, culprit=culprit), {0, 1, 2} - {culprit}
    codes = run_group(3, evaluate_and_listen, runtime(3, timeout_s=5.0), task, lost=culprit)
    assert [codes[rank] for rank in others] == [0, 0]
    for rank in others:
        told = (task.folder / f"{rank}.txt").read_text(encoding="utf-8")
        found = r"rank 1 of 3 \(decoding batch \d of \d\)" if culprit else "rank 0 of 3 has ended or hangs"
        assert re.match(found, told), told


def test_a_launched_rank_that_dies_ends_the_command_with_its_name(task: Task) -> None:
    with pytest.raises(RankError, match="rank 1 of 3 was ended by SIGKILL"):
        launch(runtime(3), evaluate_as_rank, runtime(3), replace(task, fault="dies"))


def test_a_slow_rank_is_waited_for(task: Task) -> None:
    codes = run_group(3, evaluate_and_listen, runtime(3, timeout_s=12.0), replace(task, fault="dawdles"))
    assert codes == [0, 0, 0]
    assert (task.folder / "metrics.json").is_file()
    assert re.search(
        r"for rank 1 of 3 \(decoding batch \d of \d\)", (task.folder / "0.err").read_text(encoding="utf-8")
    )
