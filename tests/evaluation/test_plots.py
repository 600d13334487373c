"""Plots are readable PNG files and leave no half-written ones."""

import json
from pathlib import Path

import pytest
import torch

from chunkwise.audio.fbank import FbankConfig
from chunkwise.evaluation.plots import plot_spectrogram, plot_training_curve

PNG = b"\x89PNG\r\n\x1a\n"


def write_metrics(path: Path, rows: list[dict[str, float | None]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_training_curve_shows_loss_and_validation(tmp_path: Path) -> None:
    losses: list[dict[str, float | None]] = [{"step": step, "loss": 5.0 / step} for step in range(1, 40)]
    validations: list[dict[str, float | None]] = [
        {"step": 20, "validation_wer": 0.5, "validation_loss": 0.4},
        {"step": 39, "validation_wer": None},
    ]
    plain, full = tmp_path / "plain.png", tmp_path / "plots" / "full.png"
    plot_training_curve(write_metrics(tmp_path / "a.jsonl", losses), plain)
    plot_training_curve(write_metrics(tmp_path / "b.jsonl", losses + validations), full)
    assert plain.read_bytes().startswith(PNG)
    assert len(full.read_bytes()) > len(plain.read_bytes())
    assert [file.name for file in full.parent.iterdir()] == ["full.png"]


def test_a_run_without_a_logged_step_has_no_curve(tmp_path: Path) -> None:
    metrics = write_metrics(tmp_path / "metrics.jsonl", [{"step": 1, "validation_wer": 1.0}])
    with pytest.raises(ValueError, match=r"metrics\.jsonl holds no training loss"):
        plot_training_curve(metrics, tmp_path / "curve.png")


def test_a_spectrogram_marks_emissions_and_takes_any_text(tmp_path: Path) -> None:
    features = torch.randn(150, 40)
    bare, marked = tmp_path / "bare.png", tmp_path / "marked.png"
    plot_spectrogram(bare, features, FbankConfig(num_mels=40), [], "quiet")
    emissions = [(0.2, "▁one"), (0.24, "$x_"), (0.24, "é"), (1.4, "⁇")]
    plot_spectrogram(marked, features, FbankConfig(num_mels=40), emissions, "a $ and b $", chunk_ms=640.0)
    assert bare.read_bytes().startswith(PNG)
    assert marked.read_bytes() != bare.read_bytes()


def test_an_utterance_without_a_frame_has_no_spectrogram(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without a feature frame"):
        plot_spectrogram(tmp_path / "none.png", torch.zeros(0, 80), FbankConfig(), [], "empty")
