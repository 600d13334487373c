"""Train, evaluate and stream through the console scripts."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import yaml
from console import command
from lhotse import MonoCut

from chunkwise.cli import assembly
from chunkwise.cli.stream import stream
from chunkwise.data.corpora.prepare import prepare_corpus
from chunkwise.data.loading import listed, load_waveform
from chunkwise.decoding.search import DecodingConfig
from chunkwise.models.context import ChunkContext
from chunkwise.streaming.latency import Latency


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_run_folder_holds_everything(run_folder: Path) -> None:
    for name in (
        "config.yaml",
        "metrics.jsonl",
        "run.json",
        "training_curve.png",
        "checkpoints/last.pt",
        "checkpoints/best.pt",
    ):
        assert (run_folder / name).stat().st_size > 0, name
    metrics = rows(run_folder / "metrics.jsonl")
    assert {row["step"] for row in metrics if "loss" in row} >= {1, 6}
    assert [row["step"] for row in metrics if "validation_wer" in row] == [3, 6]
    config = yaml.safe_load((run_folder / "config.yaml").read_text(encoding="utf-8"))
    assert config["encoder"]["d_model"] == 32
    assert config["chunking"]["kind"] == "dynamic"
    assert json.loads((run_folder / "run.json").read_text(encoding="utf-8"))["config"] == config


def test_wandb_is_one_offline_run_without_a_prompt(run_folder: Path) -> None:
    assert len(list((run_folder / "wandb").glob("offline-run-*"))) == 1


def test_the_checkpoint_loads_safely(run_folder: Path) -> None:
    content = torch.load(run_folder / "checkpoints" / "last.pt")  # weights_only is the default
    assert content["step"] == 6
    assert not any(name.startswith(("module.", "_orig_mod.")) for name in content["model"])


def test_evaluate_writes_integers_and_sorted_hypotheses(run_folder: Path) -> None:
    chunked = ["chunking=fixed", "chunking.chunk_frames=16", "chunking.left_chunks=2"]
    done = command("evaluate", f"checkpoint='{run_folder}'", *chunked, "runtime.processes=2")
    assert done.returncode == 0, done.stderr
    folder = run_folder / "evaluations" / "test-640ms-left2"
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    hypotheses = rows(folder / "hypotheses.jsonl")
    assert metrics["utterances"] == len(hypotheses) == 9
    assert [row["id"] for row in hypotheses] == sorted({row["id"] for row in hypotheses})
    for key in ("substitutions", "deletions", "insertions"):
        assert metrics[key] == sum(row[key] for row in hypotheses)
        assert isinstance(metrics[key], int)
    assert metrics["words"] == sum(len(row["reference"].split()) for row in hypotheses)
    errors = metrics["substitutions"] + metrics["deletions"] + metrics["insertions"]
    assert metrics["wer"] == errors / metrics["words"]
    assert metrics["sentence_errors"] == sum(row["reference"] != row["hypothesis"] for row in hypotheses)
    assert metrics["audio_s"] > 0
    assert "WER" in done.stdout


def test_stream_prints_partials_and_the_final_text(run_folder: Path) -> None:
    _, trained = assembly.load_trained(str(run_folder))
    cut = listed(prepare_corpus(trained.data).splits["test"])[0]
    assert isinstance(cut, MonoCut)
    assert cut.recording is not None
    audio = cut.recording.sources[0].source
    done = command("stream", f"checkpoint='{run_folder}'", f"audio='{audio}'", "chunking.chunk_frames=4")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("final")


def test_every_stream_says_what_its_evaluation_said(run_folder: Path) -> None:
    context = ChunkContext(16, 2)
    folder = run_folder / "evaluations" / "test-640ms-left2"
    if not folder.exists():
        pytest.fail("the evaluation's test comes first")
    checkpoint, trained = assembly.load_trained(str(run_folder))
    recogniser = assembly.load_recogniser(checkpoint, trained, DecodingConfig(), torch.device("cpu"))
    said = {row["id"]: row["hypothesis"] for row in rows(folder / "hypotheses.jsonl")}
    for cut in listed(prepare_corpus(trained.data).splits["test"]):
        audio, latency = (load_waveform(cut, 16_000), 16_000), Latency()
        assert stream(recogniser, context, audio, 100.0, lambda *_: None, latency).text == said[cut.id]
        assert latency.compute.counts.total() == -(-(len(audio[0]) + 80) // 160 // 64)


def test_evaluating_through_sessions_gives_the_same_bytes_and_tells_the_latency(run_folder: Path) -> None:
    chunked = ["chunking=fixed", "chunking.chunk_frames=16", "chunking.left_chunks=2", "eval.path=streaming"]
    done = command("evaluate", f"checkpoint='{run_folder}'", *chunked, "runtime.processes=2")
    assert done.returncode == 0, done.stderr
    assert "look-ahead         10360 samples" in done.stdout
    masked, streamed = (run_folder / "evaluations" / f"test-640ms-left2{path}" for path in ("", "-streaming"))
    assert (streamed / "hypotheses.jsonl").read_bytes() == (masked / "hypotheses.jsonl").read_bytes()
    latency = json.loads((streamed / "latency.json").read_text(encoding="utf-8"))
    assert latency["lookahead_samples"] == 10_360
    assert latency["compute_ms"]["count"] > 0
    assert latency["rtf"] > 0


def test_a_dry_run_prints_and_does_nothing(tiny: Sequence[str], tmp_path: Path) -> None:
    done = command("train", *tiny, "runtime.dry_run=true", f"hydra.run.dir={tmp_path / 'dry'}")
    assert done.returncode == 0, done.stderr
    assert "would run: chunkwise-train experiment=digits_streaming" in done.stdout
    assert not (tmp_path / "dry" / "checkpoints").exists()


@pytest.mark.parametrize("name", ["prepare", "train", "evaluate", "stream", "dependencies"])
def test_help_lists_the_groups_with_a_line_each(name: str) -> None:
    done = command(name, "--help")
    assert done.returncode == 0, done.stderr
    groups = {"prepare": ["data"], "train": ["encoder", "chunking", "experiment"]}.get(name, ["chunking", "decoding"])
    for group in groups:
        assert any(line.split()[:1] == [group] and len(line.split()) > 2 for line in done.stdout.splitlines()), group


def test_under_torchrun_all_ranks_share_one_run_folder(tiny: Sequence[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "chunkwise.cli.train",
            *tiny, "training.max_steps=2", "data.max_batch_s=8",
        ],
        cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "runs" / "digits").iterdir()
    assert torch.load(folder / "checkpoints" / "last.pt")["state"]["world_size"] == 2
