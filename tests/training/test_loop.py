"""The loop: what it repeats, resumes, drops, keeps and stops at."""

import json
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tiny import (
    ALONE,
    FORGIVING,
    FP16,
    TWO,
    poisoned,
    run,
    run_as_one_of_two,
    run_losses,
    run_spoilt_as_one_of_two,
    stream,
    tiny_parts,
    worsening,
)
from torch import Tensor

from chunkwise.data.samplers import Position
from chunkwise.evaluation.recogniser import inference
from chunkwise.models.context import FULL
from chunkwise.training.checkpoint import CheckpointFolder, load_checkpoint
from chunkwise.training.console import Console
from chunkwise.training.dashboard import NoDashboard
from chunkwise.training.distributed import open_world
from chunkwise.training.launching import launch
from chunkwise.training.log import RunLog
from chunkwise.training.loop import Outputs, TrainingConfig, train
from chunkwise.training.state import TrainState, Validation

TWELVE = TrainingConfig(max_steps=12, accumulate=2, validate_every=4, save_every=4)


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def without_times(folder: Path) -> list[dict[str, Any]]:
    timed = ("seconds", "audio_s_per_s", "data_wait", "padding")
    return [{name: value for name, value in record.items() if name not in timed} for record in records(folder)]


def assert_same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_loss_falls_and_every_number_is_logged(tmp_path: Path) -> None:
    run(tmp_path, replace(TWELVE, max_steps=40, validate_every=0))
    steps = [record for record in records(tmp_path) if "loss" in record]
    assert [record["step"] for record in steps] == list(range(1, 41))
    assert sum(r["loss"] for r in steps[-5:]) < 0.8 * sum(r["loss"] for r in steps[:5])
    assert {
        "lr",
        "grad_norm",
        "scale",
        "skipped_steps",
        "chunk_frames",
        "audio_s_per_s",
        "padding",
        "data_wait",
    } <= set(steps[0])
    assert steps[3]["lr"] == pytest.approx(3e-3)
    assert steps[-1]["lr"] == 0
    assert all(0 <= r["padding"] < 0.5 and 0 <= r["data_wait"] <= 1 for r in steps)


@pytest.mark.parametrize("stops", [(3,), (4,), (5, 9), (10,)])
def test_a_resumed_run_is_bitwise_the_uninterrupted_one(tmp_path: Path, stops: tuple[int, ...]) -> None:
    """With dropout, dither, masks and drawn chunks; in an epoch, at its end (5 batches), and twice."""
    state, weights = run(tmp_path / "whole", TWELVE, dropout=0.2)
    for number, stop in enumerate(stops):
        run(tmp_path / "parts", replace(TWELVE, stop_at=stop), dropout=0.2, resume=number > 0)
    resumed, resumed_weights = run(tmp_path / "parts", TWELVE, dropout=0.2, resume=True)
    assert_same_bits(weights, resumed_weights)
    whole, parts = ((tmp_path / name / "chunk_frames_histogram.json").read_text() for name in ("whole", "parts"))
    assert whole == parts
    assert sum(json.loads(whole)["counts"].values()) == 12
    assert (resumed.step, resumed.position, resumed.unusable) == (state.step, state.position, state.unusable)
    validations = [r for r in without_times(tmp_path / "parts") if "loss" in r]
    assert validations == [r for r in without_times(tmp_path / "whole") if "loss" in r]


def test_fp16_resumes_with_its_scale(tmp_path: Path) -> None:
    def attempt(name: str, stop_at: int | None, resume: bool = False) -> dict[str, Tensor]:
        parts = tiny_parts(open_world(ALONE), precision=FP16)
        short = replace(TWELVE, max_steps=6, accumulate=1, validate_every=0, stop_at=stop_at)
        return run(tmp_path / name, short, parts=parts, resume=resume)[1]

    whole = attempt("whole", None)
    attempt("parts", 4)
    assert_same_bits(whole, attempt("parts", None, resume=True))
    assert [r["scale"] for r in records(tmp_path / "parts") if "loss" in r] == [64, 64, 64, 128, 128, 128]


def test_a_finished_run_says_so_and_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = replace(TWELVE, max_steps=2)
    _, weights = run(tmp_path, config)
    before = records(tmp_path)
    capsys.readouterr()
    _, again = run(tmp_path, config, resume=True)
    assert "nothing left to train: the run stands at step 2 of 2" in capsys.readouterr().out
    assert records(tmp_path) == before
    assert_same_bits(weights, again)


def test_a_run_that_was_cut_before_its_last_validation_makes_up_for_it(tmp_path: Path) -> None:
    config = replace(TWELVE, max_steps=4, validate_every=0)
    run(tmp_path, replace(config, max_steps=8, stop_at=4))
    state, _ = run(tmp_path, config, resume=True)
    assert state.validated_step == state.best_step == 4
    assert [r["step"] for r in records(tmp_path) if "validation_wer" in r] == [4]


def test_a_window_with_an_infinite_loss_is_dropped_whole_and_counted_once(tmp_path: Path) -> None:
    parts = tiny_parts(open_world(ALONE), precision=FORGIVING)
    state, weights = run(tmp_path, replace(TWELVE, max_steps=5), parts=parts, bad=frozenset({2, 6, 7}))
    assert (state.step, state.skipped, state.skipped_in_a_row) == (5, 2, 0)
    assert all(weight.isfinite().all() for weight in weights.values())
    steps = [record for record in records(tmp_path) if "loss" in record]
    assert [record["loss"] is None for record in steps] == [False, True, False, True, False, False, False]
    assert [record["step"] for record in steps] == [1, 1, 2, 2, 3, 4, 5]
    counts = [
        group["step"].item()
        for group in load_checkpoint(tmp_path / "checkpoints" / "last.pt").optimizer["state"].values()
    ]
    assert set(counts) == {5}
    # Neither the schedule nor the drawn contexts moved on for a dropped window.
    assert [record["lr"] for record in steps][:3] == pytest.approx([3e-3 / 4, 3e-3 / 2, 3e-3 / 2])


def test_nothing_but_dropped_windows_ends_with_a_sentence(tmp_path: Path) -> None:
    parts = tiny_parts(open_world(ALONE), precision=FORGIVING)
    with pytest.raises(ValueError, match=r"4 steps in a row had a loss or gradient that is not finite"):
        run(tmp_path, replace(TWELVE, accumulate=1), parts=parts, bad=frozenset(range(2, 100)))


def test_one_ranks_infinite_loss_drops_the_window_on_all(tmp_path: Path) -> None:
    config = replace(TWELVE, accumulate=1, max_steps=4, validate_every=0)
    for precision in (FORGIVING, FP16):
        folder = tmp_path / precision.kind
        state, weights = launch(TWO, run_spoilt_as_one_of_two, str(folder), config, precision)
        assert (state.step, state.skipped) == (4, 1)
        assert all(weight.isfinite().all() for weight in weights.values())
        losses = [record["loss"] is None for record in records(folder) if "loss" in record]
        assert losses == [False, True, False, False, False]
    scales = [record["scale"] for record in records(folder) if "loss" in record]
    assert scales == [64, 64, 32, 32, 32]  # backed off once


def test_every_step_is_kept_and_every_few_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = replace(TWELVE, max_steps=7, validate_every=0)
    world = open_world(ALONE)
    log = RunLog(tmp_path / "metrics.jsonl", Console(7), NoDashboard(), every_steps=3)
    outputs = Outputs(log, CheckpointFolder(tmp_path / "checkpoints", {}, b"tokenizer"))
    batches = poisoned(stream(Position(), world), {2})
    train(config, tiny_parts(world, precision=FP16), batches, worsening(), outputs, TrainState())
    steps = [record for record in records(tmp_path) if "loss" in record]
    assert [(r["step"], r["scale"], r["skipped_steps"]) for r in steps[:4]] == [
        (1, 64, 0), (1, 64, 1), (2, 32, 1), (3, 32, 1),
    ]  # fmt: skip
    assert [r["step"] for r in steps] == [1, 1, 2, 3, 4, 5, 6, 7]
    assert all(r["grad_norm"] is not None for r in steps if r["loss"] is not None)
    assert [r["step"] for r in steps if "audio_s_per_s" in r] == [1, 1, 3, 6, 7]
    said = [line.split()[1] for line in capsys.readouterr().out.splitlines() if "s of audio/s" in line]
    assert said == ["1/7", "1/7", "3/7", "6/7", "7/7"]


def test_best_is_the_best_by_validation_and_last_is_the_last(tmp_path: Path) -> None:
    state, _ = run(tmp_path, TWELVE)
    best, last = (load_checkpoint(tmp_path / "checkpoints" / name) for name in ("best.pt", "last.pt"))
    assert (best.step, last.step) == (4, 12)
    assert state.best is not None
    assert (state.best.wer, state.best_step) == (0.1, 4)
    assert [r["validation_wer"] for r in records(tmp_path) if "validation_wer" in r] == [0.1, 0.2, 0.3]


def test_every_validation_sees_the_weights_of_its_step(tmp_path: Path) -> None:
    parts, seen = tiny_parts(open_world(ALONE), max_steps=12), list[Tensor]()
    encoder = parts.objective.model.encoder
    x, lengths = torch.randn(2, 9, encoder.d_model), torch.tensor([9, 6])

    def validate() -> Validation:
        with inference(parts.objective):
            encoded, _ = encoder.contextualise(x, lengths, FULL)
            seen.append(encoded)
            copied, _ = deepcopy(encoder).contextualise(x, lengths, FULL)
        torch.testing.assert_close(encoded, copied, rtol=0, atol=0)
        return Validation(wer=1.0, loss=1.0)

    run(tmp_path, TWELVE, parts=parts, validate=validate)
    assert len(seen) == 3
    assert not any(torch.equal(one, other) for one, other in pairwise(seen))


def test_training_time_ends_a_run_and_is_counted_over_resumes(tmp_path: Path) -> None:
    timed = replace(TWELVE, max_steps=10_000, validate_every=0, max_seconds=0.5)
    first, _ = run(tmp_path, replace(timed, stop_at=2))
    second, _ = run(tmp_path, timed, resume=True)
    assert 0 < first.seconds < 0.5 <= second.seconds < 5
    assert 2 < second.step < 10_000
    assert [r["step"] for r in records(tmp_path) if "validation_wer" in r] == [second.step]


def test_unusable_utterances_are_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, replace(TWELVE, stop_at=4))
    run(tmp_path, TWELVE, resume=True)
    assert capsys.readouterr().out.count("skipped utterance broken: broken.wav is empty (1 in all)") == 1


def test_two_processes_equal_one_with_twice_the_batches(tmp_path: Path) -> None:
    """In all that is drawn too: dropout, dither, masks; with every loss; and after a resume."""
    pairs = replace(TWELVE, accumulate=1, max_steps=8)
    joined = replace(pairs, accumulate=2)
    both, two = launch(TWO, run_as_one_of_two, str(tmp_path / "two"), pairs, 5)
    state, whole = run(tmp_path / "one", joined, dropout=0.2)
    one = run_losses(tmp_path / "one", replace(joined, max_steps=3), open_world(ALONE)) | {"resumed": whole}
    for run_name, weights in one.items():
        for name, weight in weights.items():
            torch.testing.assert_close(two[run_name][name], weight, atol=1e-5, rtol=0, msg=f"{run_name}: {name}")
    losses = [[r["loss"] for r in records(tmp_path / name) if "loss" in r] for name in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert (both.step, both.position, both.unusable) == (state.step, state.position, state.unusable)
    with pytest.raises(ValueError, match=r"runtime\.processes=1 differs from the 2 of .*last\.pt"):
        run(tmp_path / "two", pairs, resume=True)


def test_loops_that_cannot_run_are_refused_by_name() -> None:
    for name, value in (
        ("max_steps", 0),
        ("accumulate", 0),
        ("validate_every", -1),
        ("max_grad_norm", 0.0),
        ("max_seconds", 0.0),
        ("stop_at", 0),
    ):
        with pytest.raises(ValueError, match=rf"training\.{name}={value}"):
            TrainingConfig(**cast(dict[str, Any], {name: value}))
