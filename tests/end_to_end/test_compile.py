"""Compiled training steps: the losses of eager ones, no compiling for every new shape, a refusal where it cannot be."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from console import command

EPOCH = ["data.max_batch_s=4", "training.max_steps=16", "training.validate_every=8", "training.save_every=16"]


def losses(folder: Path) -> dict[int, float]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


def test_a_compiled_epoch_of_mixed_lengths_and_chunks_is_the_eager_one(tiny: Sequence[str], tmp_path: Path) -> None:
    eager, compiled = tmp_path / "eager", tmp_path / "compiled"
    done = command("train", *tiny, *EPOCH, f"hydra.run.dir={eager}")
    assert done.returncode == 0, done.stderr
    settings = [*tiny, *EPOCH, "runtime.compile=true", f"hydra.run.dir={compiled}"]
    # without vector instructions, as finding out which the compiler knows takes longer than training
    done = command("train", *settings, TORCH_LOGS="recompiles", TORCHINDUCTOR_VEC_ISA_OK="0")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Recompiling function") <= 3, done.stderr
    assert losses(compiled) == pytest.approx(losses(eager), rel=1e-4)
    weights = [torch.load(run / "checkpoints" / "last.pt")["model"] for run in (eager, compiled)]
    assert weights[0].keys() == weights[1].keys()
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, atol=1e-3, rtol=1e-3, msg=name)


def test_a_machine_without_a_compiler_is_refused_before_training(tiny: Sequence[str], tmp_path: Path) -> None:
    settings = [*tiny, "runtime.compile=true", f"hydra.run.dir={tmp_path / 'run'}"]
    done = command("train", *settings, CXX="no-such-compiler", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("error: runtime.compile=true: torch.compile does not work")
    assert "C++ compiler" in done.stderr
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_only_training_compiles(run_folder: Path) -> None:
    done = command("evaluate", f"checkpoint='{run_folder}'", "runtime.compile=true")
    assert done.returncode == 1
    assert done.stderr.startswith("error: runtime.compile=true compiles training steps")
