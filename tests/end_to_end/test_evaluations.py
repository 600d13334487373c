"""Grids of contexts, comparisons and cut-off evaluations, as a user calls them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from console import TIMEOUT_S, command

GRID = ["eval.contexts.chunk_frames=[16,8]", "eval.contexts.left_chunks=[null,2]"]
LABELS = ["full", "640ms", "320ms", "640ms-left2", "320ms-left2"]


@pytest.fixture(scope="module")
def masked_grid(run_folder: Path) -> Path:
    """The folder of a grid, evaluated by two ranks."""
    done = command("evaluate", f"checkpoint='{run_folder}'", *GRID, "runtime.processes=2")
    assert done.returncode == 0, done.stderr
    assert "| left context | 640 ms | 320 ms |" in done.stdout
    return run_folder / "evaluations" / "test-grid"


def test_a_grid_holds_the_evaluation_of_each_context_to_the_byte(
    run_folder: Path, masked_grid: Path, tmp_path: Path
) -> None:
    content = json.loads((masked_grid / "contexts.json").read_text(encoding="utf-8"))
    assert [row["context"] for row in content["contexts"]] == LABELS
    for name in ("contexts.md", "contexts.png"):
        assert (masked_grid / name).stat().st_size > 0
    chunked = ["chunking=fixed", "chunking.chunk_frames=8", "chunking.left_chunks=2"]
    done = command("evaluate", f"checkpoint='{run_folder}'", *chunked, f"hydra.run.dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    for name in ("metrics.json", "hypotheses.jsonl", "report.md", "report.html"):
        assert (masked_grid / "test-320ms-left2" / name).read_bytes() == (tmp_path / name).read_bytes(), name
    row = next(row for row in content["contexts"] if row["context"] == "320ms-left2")
    metrics = json.loads((tmp_path / "metrics.json").read_text(encoding="utf-8"))
    assert {key: row[key] for key in ("wer", "wer_interval", "deletions")} == {
        key: metrics[key] for key in ("wer", "wer_interval", "deletions")
    }
    assert not (masked_grid / ".unfinished").exists()


def test_a_grid_through_sessions_gives_the_same_words(run_folder: Path, masked_grid: Path) -> None:
    done = command("evaluate", f"checkpoint='{run_folder}'", *GRID, "eval.path=streaming")
    assert done.returncode == 0, done.stderr
    streamed = run_folder / "evaluations" / "test-grid-streaming"
    for label in LABELS:
        inside = streamed / f"test-{label}-streaming"
        expected = (masked_grid / f"test-{label}" / "hypotheses.jsonl").read_bytes()
        assert (inside / "hypotheses.jsonl").read_bytes() == expected, label
        assert json.loads((inside / "latency.json").read_text(encoding="utf-8"))["context"] == label


def test_two_evaluations_are_compared(masked_grid: Path, tmp_path: Path) -> None:
    sides = masked_grid / "test-full", masked_grid / "test-320ms" / "hypotheses.jsonl"
    done = command("evaluate", f"compare=['{sides[0]}','{sides[1]}']", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [folder] = (tmp_path / "runs" / "comparisons").iterdir()
    found = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    rates = [json.loads((masked_grid / f"test-{c}" / "metrics.json").read_text())["wer"] for c in ("full", "320ms")]
    assert found["difference"] == pytest.approx(rates[1] - rates[0])
    assert found["better"] + found["worse"] + found["equal"] == found["utterances"] == 9
    assert 0 <= found["probability_of_improvement"] <= 1
    for shown in ("first  WER", "second WER", "points from the first's", "comparison.md"):
        assert shown in done.stdout


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["compare=[a]"], "compare=[a] must name two evaluations"),
        (["compare=[a,b]"], "a is missing; name a hypotheses.jsonl"),
        (["compare=[a,b]", "checkpoint=RUN"], "compare reads what was evaluated before"),
        (["checkpoint=RUN", *GRID, "chunking=fixed", "chunking.chunk_frames=8"], "leave one of them out"),
        (["checkpoint=RUN", "eval.contexts.chunk_frames=[0]"], "eval.contexts.chunk_frames=[0] holds 0"),
        (["checkpoint=RUN", "eval.contexts.left_chunks=[2]"], "eval.contexts.left_chunks=[2] needs chunk sizes"),
        ([], "checkpoint=null must name a run folder"),
    ],
)
def test_what_says_nothing_is_refused(run_folder: Path, tmp_path: Path, overrides: Sequence[str], words: str) -> None:
    done = command("evaluate", *(option.replace("RUN", f"'{run_folder}'") for option in overrides), cwd=tmp_path)
    assert done.returncode == 1
    [said] = done.stderr.strip().splitlines()
    assert words in said


def test_training_refuses_a_grid(tiny: Sequence[str], tmp_path: Path) -> None:
    done = command("train", *tiny, *GRID, f"hydra.run.dir={tmp_path / 'run'}")
    assert done.returncode == 1
    assert "eval.contexts is a grid for chunkwise-evaluate" in done.stderr


def test_an_evaluation_that_was_killed_goes_on_where_it_was(
    run_folder: Path, masked_grid: Path, tmp_path: Path
) -> None:
    slow = ["eval.path=streaming", "eval.piece_ms=5", "eval.max_batch_s=1"]  # an utterance at a time, for a while
    arguments = ["evaluate", f"checkpoint='{run_folder}'", *GRID, *slow, f"hydra.run.dir={tmp_path}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    killed = subprocess.Popen(
        [sys.executable, "-m", f"chunkwise.cli.{arguments[0]}", *arguments[1:]], env=environment,
        start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    finished, deadline = tmp_path / ".unfinished" / "rank-0.jsonl", time.monotonic() + TIMEOUT_S
    while not (finished.exists() and finished.read_bytes().count(b"\n") >= 2):
        assert killed.poll() is None, "it was through before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait(TIMEOUT_S)
    done_before = finished.read_bytes().count(b"\n")
    assert not (tmp_path / "contexts.json").exists()
    done = command(*arguments, "runtime.processes=2")
    assert done.returncode == 0, done.stderr
    assert f"{done_before} of 9 utterances were decoded before; going on with the rest" in done.stdout
    for label in LABELS:
        expected = (masked_grid / f"test-{label}" / "hypotheses.jsonl").read_bytes()
        assert (tmp_path / f"test-{label}-streaming" / "hypotheses.jsonl").read_bytes() == expected, label
    assert not (tmp_path / ".unfinished").exists()
