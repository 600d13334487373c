"""What a new user gets wrong: one clear sentence and a non-zero exit code, or a count where that is the rule."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from console import command


def sentence(done: "subprocess.CompletedProcess[str]") -> str:
    """The one line on stderr of a command that failed."""
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.fixture
def audio(tmp_path: Path) -> Path:
    """A tone and several files that are not quite recordings."""
    tone = 0.3 * np.sin(np.arange(16_000) / 10)
    soundfile.write(tmp_path / "tone.wav", tone, 16_000)
    soundfile.write(tmp_path / "stereo.wav", np.stack([tone, tone], axis=1), 44_100)
    soundfile.write(tmp_path / "short.wav", tone[:399], 16_000)
    soundfile.write(tmp_path / "broken.wav", np.array([0.1, np.nan, 0.2]), 16_000, subtype="FLOAT")
    (tmp_path / "text.wav").write_text("this is no recording")
    (tmp_path / "empty.wav").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(("name", "words"), [
    ("missing.wav", "does not exist"),
    ("text.wav", "is not readable audio"),
    ("empty.wav", "is empty"),
    ("broken.wav", "non-finite"),
])  # fmt: skip
def test_a_file_that_is_no_recording_is_named(run_folder: Path, audio: Path, name: str, words: str) -> None:
    said = sentence(command("stream", f"checkpoint='{run_folder}'", f"audio={audio / name}"))
    assert name in said
    assert words in said


@pytest.mark.parametrize("name", ["short.wav", "stereo.wav"])
def test_short_stereo_and_fast_recordings_are_streamed(run_folder: Path, audio: Path, name: str) -> None:
    done = command("stream", f"checkpoint='{run_folder}'", f"audio={audio / name}")
    assert done.returncode == 0, done.stderr


def test_a_missing_corpus_is_named(tmp_path: Path) -> None:
    said = sentence(
        command("train", "data=fsdd", f"data.root={tmp_path / 'nowhere'}", f"hydra.run.dir={tmp_path / 'run'}")
    )
    assert "nowhere" in said
    assert "data.root" in said


@pytest.mark.skipif(find_spec("k2") is not None, reason="k2 is installed here")
def test_a_backend_that_is_not_installed_is_named_before_anything_starts(tmp_path: Path) -> None:
    folders = (f"data.prepared_dir={tmp_path / 'prepared'}", f"hydra.run.dir={tmp_path / 'run'}")
    said = sentence(command("train", "loss=pruned", "loss.backend=k2", *folders))
    assert "loss.backend=k2" in said
    assert "environment.yml" in said
    assert not (tmp_path / "prepared").exists()


def test_bad_recordings_of_a_corpus_are_skipped_and_counted(tmp_path: Path, shared_data: Path) -> None:
    recordings = tmp_path / "fsdd" / "recordings"
    recordings.mkdir(parents=True)
    for path in (shared_data / "fsdd" / "recordings").glob("*_theo_?.wav"):
        shutil.copy(path, recordings)
    (recordings / "3_theo_8.wav").write_text("this is no recording")
    (recordings / "4_theo_9.wav").write_bytes(b"")
    done = command(
        "prepare", "data=fsdd", f"data.root={tmp_path / 'fsdd'}", f"data.prepared_dir={tmp_path / 'prepared'}",
        "data.train_utterances=10", "data.dev_utterances=2", "data.test_utterances=2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "left out 2 recordings" in done.stdout
    for name in ("3_theo_8", "4_theo_9"):
        assert done.stdout.count(name) >= 1


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    assert "nothing_here" in sentence(command("evaluate", f"checkpoint={tmp_path / 'nothing_here'}"))
    assert "checkpoint=" in sentence(command("stream", "audio=x.wav"))


def test_a_file_that_is_no_checkpoint_is_named_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no weights in here")
    assert "notes.txt is not a checkpoint" in sentence(command("evaluate", f"checkpoint={tmp_path / 'notes.txt'}"))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_checkpoint_of_another_vocabulary_is_refused(run_folder: Path, tmp_path: Path) -> None:
    content = torch.load(run_folder / "checkpoints" / "best.pt")
    for name in ("predictor.embedding.weight", "joiner.output.weight", "joiner.output.bias"):
        content["model"][name] = content["model"][name][:-1].clone()
    content["vocab_size"] -= 1
    torch.save(content, tmp_path / "other.pt")
    said = sentence(command("stream", f"checkpoint={tmp_path / 'other.pt'}", f"audio={tmp_path / 'other.pt'}"))
    assert "readable audio" in said  # the recording is looked at first
    soundfile.write(tmp_path / "tone.wav", np.zeros(16_000), 16_000)
    said = sentence(command("stream", f"checkpoint={tmp_path / 'other.pt'}", f"audio={tmp_path / 'tone.wav'}"))
    assert "tokenizer.vocab_size" in said


@pytest.mark.parametrize(("override", "words"), [
    ("encoder.d_modle=3", "'d_modle' not in"),
    ("encoder=strming", "full_small, streaming, streaming_large"),
    ("training.max_steps=many", "'many' of type 'str' could not be converted to Integer"),
    ("eval.path=streamed", "expected one of [masked, streaming]"),
    ("seed", "missing EQUAL"),
])  # fmt: skip
def test_an_option_that_cannot_be_is_refused_in_one_sentence(override: str, words: str) -> None:
    said = sentence(command("train", override))
    assert override.split("=")[0].split(".")[-1] in said
    assert words in said


def test_a_distribution_is_no_context_of_an_evaluation(run_folder: Path) -> None:
    assert "chunking=fixed" in sentence(command("evaluate", f"checkpoint='{run_folder}'", "chunking=dynamic"))


def test_an_untrainable_corpus_is_refused_before_training(tiny: Sequence[str], tmp_path: Path) -> None:
    said = sentence(command("train", *tiny, "tokenizer=bpe500", f"hydra.run.dir={tmp_path}"))
    assert "tokenizer.vocab_size=500" in said


def test_training_that_overflows_ends_with_a_diagnosis(tiny: Sequence[str], tmp_path: Path) -> None:
    done = command("train", *tiny, "optimizer.lr=1e38", "precision.patience=2", f"hydra.run.dir={tmp_path}")
    assert "overflow.json says more" in sentence(done)
    assert "first output: " in done.stdout
    assert "try: " in done.stdout
    content = json.loads((tmp_path / "overflow.json").read_text(encoding="utf-8"))
    assert all(batch["utterances"] for batch in content["batches"])
