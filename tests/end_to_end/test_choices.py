"""Every choice of a group trains and is validated, from the command line's own words."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from chunkwise.cli import train
from chunkwise.config import TrainConfig, conf_dir, read, register

CHOICES = [
    "encoder.attention=relative",
    "chunking=full",
    "chunking=fixed",
    "chunking=uniform",
    "chunking=choices",
    "predictor=lstm",
    "loss=pruned",
    "precision=bf16",
    "precision=fp16",
    "tokenizer=word",
    "features=fbank40",
    "normalisation=running",
    "augment=none",
    "augment=speaker",
    "schedule=cosine",
    "decoding=beam",
    "eval=single",
]


def composed(tiny: Sequence[str], *choices: str) -> TrainConfig:
    register()
    small = ["training.max_steps=2", "training.validate_every=0", "data.dev_utterances=4", "chunking=dynamic"]
    made = {choice.split("=")[0] for choice in choices}
    chosen = [override for override in small if override.split("=")[0] not in made]
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        return read(TrainConfig, compose("train", [*tiny, *chosen, *choices]))


@pytest.mark.parametrize("choice", CHOICES)
def test_it_trains(tiny: Sequence[str], tmp_path: Path, choice: str) -> None:
    train.run(composed(tiny, choice), tmp_path, "test")
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = {record["step"]: record["loss"] for record in records if "loss" in record}
    assert {1, 2} <= set(losses)  # fp16 may drop windows before its scale fits
    assert all(math.isfinite(losses[step]) for step in (1, 2))
    assert records[-1]["validation_wer"] is not None
    assert (tmp_path / "checkpoints" / "best.pt").exists()


def test_auto_says_which_backend_of_the_pruned_loss_it_took(
    tiny: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train.run(composed(tiny, "loss=pruned", "training.max_steps=1"), tmp_path, "test")
    assert capsys.readouterr().out.count("loss.backend=auto took ") == 1
