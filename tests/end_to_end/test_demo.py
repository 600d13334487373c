"""The demo's stages on a tiny model: what it leaves, and what it does not repeat."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from chunkwise.cli import demo
from chunkwise.config import TrainConfig, conf_dir, read, register


def test_the_demo_reports_and_the_second_time_reuses(
    tiny: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    register()
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        config = read(TrainConfig, compose("train", [*tiny, "resume=true"]))
    monkeypatch.setattr(demo, "FOLDER", tmp_path / "demo")
    monkeypatch.setattr(demo, "demo_config", lambda: config)

    demo.main()
    first = json.loads((tmp_path / "demo" / "summary.json").read_text(encoding="utf-8"))
    assert list(first["wer"]) == ["full", "1280ms", "640ms", "320ms"]
    assert first["total_s"] > first["train_s"] > 0
    assert first["parameters"] > 10_000
    report = (tmp_path / "demo" / "report.md").read_text(encoding="utf-8")
    for words in ("| full |", "training_curve.png", "spectrogram.png", "audio heard"):
        assert words in report
    pages = re.findall(r"\]\((evaluations/[^)]*)\)", report)
    assert len(pages) == 4
    assert all((tmp_path / "demo" / page).is_file() for page in pages)
    assert "reusing" not in capsys.readouterr().out

    demo.main()
    out = capsys.readouterr().out
    assert out.count("reusing") == 5  # the training and four evaluations
    assert "found" in out  # the corpus
    assert json.loads((tmp_path / "demo" / "summary.json").read_text(encoding="utf-8"))["wer"] == first["wer"]
