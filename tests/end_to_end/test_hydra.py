"""Sweeps, quoting and paths, as Hydra's users meet them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from console import command


def test_a_failing_job_of_a_sweep_leaves_its_traceback_and_the_others_run(tiny: Sequence[str], tmp_path: Path) -> None:
    sweep = ["encoder.num_heads=2,7,4", f"hydra.sweep.dir={tmp_path}"]
    done = command("train", "-m", *tiny, *sweep, "training.max_steps=2", "logger=wandb")
    assert done.returncode == 1, done.stdout + done.stderr
    failed = (tmp_path / "1" / "chunkwise-train.log").read_text(encoding="utf-8")
    assert "Traceback" in failed
    assert "encoder.num_heads=7 must divide" in failed
    for job in ("0", "2"):
        assert (tmp_path / job / "checkpoints" / "last.pt").exists()
        assert len(list((tmp_path / job / "wandb").glob("offline-run-*"))) == 1
    assert len({(tmp_path / job / "wandb" / "run-id").read_text() for job in ("0", "2")}) == 2


def test_a_sweep_trains_in_two_processes_job_after_job(tiny: Sequence[str], tmp_path: Path) -> None:
    sweep = ["seed=1,2", "runtime.processes=2", f"hydra.sweep.dir={tmp_path}"]
    done = command("train", "-m", *tiny, *sweep, "training.max_steps=2", "data.max_batch_s=8")
    assert done.returncode == 0, done.stdout + done.stderr
    for job in ("0", "1"):
        assert (tmp_path / job / "run.json").exists()


def test_commas_mean_a_sweep_only_where_they_are_not_quoted() -> None:
    dry = ["runtime.dry_run=true", "hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=stdout"]
    ambiguous = command("train", *dry, "logger.name=a,b")
    assert ambiguous.returncode == 1
    assert "Ambiguous" in ambiguous.stderr
    quoted = command("train", *dry, "logger.name='a,b'", "logger.project='x=y'")
    assert quoted.returncode == 0, quoted.stderr
    assert "name: a,b" in quoted.stdout
    assert "project: x=y" in quoted.stdout


def test_a_quoted_comma_is_one_job_of_a_sweep(tmp_path: Path) -> None:
    done = command("train", "-m", "runtime.dry_run=true", "logger.name='a,b'", f"hydra.sweep.dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("would run:") == 1


@pytest.mark.parametrize("chdir", ["true", "false"])
def test_paths_count_from_the_launch_folder(tiny: Sequence[str], tmp_path: Path, chdir: str) -> None:
    settings = [override for override in tiny if not override.startswith("data.prepared_dir")]
    done = command(
        "train", *settings, "data.prepared_dir=ready", f"hydra.job.chdir={chdir}", "hydra.run.dir=out/run",
        "training.max_steps=1", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "ready").glob("digits-*"))) == 1
    assert (tmp_path / "out" / "run" / "checkpoints" / "last.pt").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "ready"]


def test_the_kept_config_is_resolved_and_plain(run_folder: Path) -> None:
    text = (run_folder / "config.yaml").read_text(encoding="utf-8")
    assert "${" not in text
    assert "???" not in text
    assert isinstance(yaml.safe_load(text)["training"]["max_steps"], int)
