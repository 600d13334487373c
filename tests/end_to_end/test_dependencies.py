"""The dependency analysis through its console script."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
from console import command

from chunkwise.config import DependenciesConfig

SMALL = [
    "chunking.chunk_frames=4", "chunking.left_chunks=1", "encoder.d_model=16", "encoder.num_layers=2",
    "encoder.num_heads=2", "encoder.feed_forward_dim=32", "encoder.kernel_size=5", "encoder.subsampling_channels=4",
    "runtime=cpu",
]  # fmt: skip

LEAK = """
from chunkwise.nn.convolution import ChunkConvolution
mix = ChunkConvolution.mix
ChunkConvolution.mix = lambda self, gated, valid, chunk_frames: mix(self, gated, valid, None)
"""


def summary(folder: Path) -> dict:
    return json.loads((folder / "dependencies.json").read_text(encoding="utf-8"))


def test_random_weights_have_exactly_the_dependencies_of_their_shape(tmp_path: Path) -> None:
    done = command("dependencies", *SMALL, "decoding.max_symbols_per_frame=1", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "runs" / "dependencies" / "160ms-left1"
    result = summary(folder)
    assert result["violations"] == 0
    assert result["measured_lookahead_samples"] == result["declared_lookahead_samples"] == 2680
    layers, features, samples, *tokens = result["dependences"]
    assert layers["expected"] == 304
    assert layers["seen"] == {"gradient": 304, "perturbation": 304}
    assert (features["left"], features["right"]) == (71, 12)
    assert samples["seen"]["gradient"] == samples["expected"]
    assert tokens == [] or tokens[0]["system"] == "emission_from_features"
    with np.load(folder / "dependencies.npz") as matrices:
        assert matrices["layers.seen"].sum() == 304
        assert matrices["frames_from_samples.seen"].shape == (24, 24 * 640)
        assert matrices["layers.gradient"].dtype == np.float32
    assert (folder / "dependencies.png").read_bytes().startswith(b"\x89PNG")
    images = list(folder.glob("wandb/offline-run-*/files/media/images/dependencies_*.png"))
    assert len(images) == 1, "W&B got no picture"


def test_an_utterance_of_the_test_set_through_a_trained_model(run_folder: Path) -> None:
    chunked = ["chunking.chunk_frames=4", "chunking.left_chunks=2", "analysis.samples=false", "logger=none"]
    done = command("dependencies", f"checkpoint='{run_folder}'", "utterance=first", *chunked)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = run_folder / "dependencies" / "160ms-left2"
    result = summary(folder)
    assert result["source"].startswith("digits-test-")
    assert result["violations"] == 0
    assert len(result["tokens"]) == np.load(folder / "dependencies.npz")["hypothesis.tokens"].size
    assert not (folder / "wandb").exists()


def test_a_recording_at_another_rate(run_folder: Path, tmp_path: Path) -> None:
    audio = tmp_path / "a b.wav"
    soundfile.write(audio, 0.1 * np.random.default_rng(0).standard_normal(6000), 8000)
    settings = [f"audio='{audio}'", "chunking=full", "analysis.method=gradient", f"hydra.run.dir={tmp_path / 'out'}"]
    done = command("dependencies", f"checkpoint='{run_folder}'", *settings, "logger=none")
    assert done.returncode == 0, done.stdout + done.stderr
    result = summary(tmp_path / "out")
    assert (result["source"], result["context"]) == ("a b.wav", "full")
    assert result["dependences"][2]["num_inputs"] == 12_000
    assert list(result["dependences"][0]["seen"]) == ["gradient"]


def test_a_leak_is_an_error_that_names_the_frames_after_everything_is_written(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LEAK)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    out = tmp_path / "out"
    settings = [f"hydra.run.dir={out}", "logger=none", "analysis.samples=false"]
    done = command("dependencies", *SMALL, *settings, PYTHONPATH=path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.startswith("error: layers depends on what it must not see: encoder frame 0 on ")
    assert "4-7 (allowed: 0-3)" in done.stderr
    assert summary(out)["violations"] > 0
    assert (out / "dependencies.png").exists()


@pytest.mark.parametrize(("arguments", "words"), [
    (["checkpoint=RUN", "encoder.d_model=64"], "encoder.d_model=64 has no effect on the model of checkpoint="),
    (["checkpoint=RUN", "utterance=nobody"], "utterance=nobody is not in the test set of digits; try"),
    (["audio=missing.wav"], "missing.wav"),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(
    run_folder: Path, tmp_path: Path, arguments: list[str], words: str
) -> None:
    given = [argument.replace("RUN", f"'{run_folder}'") for argument in arguments]
    done = command("dependencies", *given, "logger=none", f"hydra.run.dir={tmp_path / 'out'}", cwd=tmp_path)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_sources_that_exclude_each_other_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="audio=a.wav and utterance=first exclude each other"):
        DependenciesConfig(checkpoint="run", utterance="first", audio="a.wav")
    with pytest.raises(ValueError, match="utterance=first needs a checkpoint"):
        DependenciesConfig(utterance="first")
