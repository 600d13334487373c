"""The recipes of the real corpora, shrunk: from their folder layout to error rates."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
from console import command
from hydra import compose, initialize_config_dir

from chunkwise.cli import train
from chunkwise.config import TrainConfig, conf_dir, read, register

SMALL = [
    "runtime=cpu", "runtime.threads=1", "data.num_workers=0", "data.max_batch_s=20", "logger=none",
    "encoder.d_model=32", "encoder.num_layers=1", "encoder.num_heads=2", "encoder.feed_forward_dim=64",
    "encoder.kernel_size=7", "encoder.subsampling_channels=8", "predictor.dim=32", "joiner.dim=32",
    "training.max_steps=2", "training.validate_every=0",
]  # fmt: skip


def trained(folder: Path, overrides: Sequence[str]) -> dict:
    register()
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        config = read(TrainConfig, compose("train", [*overrides, *SMALL, f"data.prepared_dir='{folder / 'prepared'}'"]))
    train.run(config, folder / "run", "test")
    done = command("evaluate", f"checkpoint='{folder / 'run'}'")
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "run" / "evaluations" / "test-full" / "metrics.json").read_text(encoding="utf-8"))


def test_librispeech_from_flac_and_transcripts(tmp_path: Path) -> None:
    words = ["as you know", "it's a fine day", "go on then", "she had a very fine voice"]
    for part, speaker in (("train-clean-5", 19), ("dev-clean-2", 84)):
        chapter = tmp_path / "LibriSpeech" / part / str(speaker) / "7"
        chapter.mkdir(parents=True)
        lines = []
        for number in range(6):
            noise = 0.1 * np.random.default_rng(number).standard_normal(24_000 + 4_000 * number)
            soundfile.write(chapter / f"{speaker}-7-{number:04d}.flac", noise, 16_000)
            lines.append(f"{speaker}-7-{number:04d} {words[number % 4].upper()}\n")
        (chapter / f"{speaker}-7.trans.txt").write_text("".join(lines), encoding="utf-8")
    settings = ["experiment=mini_librispeech_streaming", f"data.root='{tmp_path}'", "tokenizer=char", "precision=fp32"]
    metrics = trained(tmp_path, settings)
    assert metrics["utterances"] == 6
    assert metrics["words"] == sum(len(words[number % 4].split()) for number in range(6))


def test_yesno_from_its_recordings(tmp_path: Path, shared_data: Path) -> None:
    metrics = trained(tmp_path, ["experiment=yesno_streaming", f"data.root='{shared_data / 'waves_yesno'}'"])
    assert metrics["utterances"] == 30
    assert metrics["words"] == 240
