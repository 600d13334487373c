"""Checkpoints are whole or absent, plain, strict, and found by their run."""

import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import ALONE, tiny_objective, tiny_parts

from chunkwise.losses.config import LossConfig
from chunkwise.training.checkpoint import (
    CheckpointFolder,
    find_checkpoint,
    load_checkpoint,
    load_newest,
    restore_model,
    restore_training,
)
from chunkwise.training.distributed import open_world
from chunkwise.training.state import TrainState
from chunkwise.training.step import Parts

CONFIG: dict[str, Any] = {"seed": 3, "encoder": {"d_model": 16}, "augment": {"speed_factors": [0.9, 1.0]}, "name": None}


@pytest.fixture
def parts() -> Parts:
    return tiny_parts(open_world(ALONE))


@pytest.fixture
def checkpoints(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "checkpoints", CONFIG, b"sentence piece \x00 model")


def save(checkpoints: CheckpointFolder, parts: Parts, step: int) -> Path:
    checkpoints.save(parts.objective, parts.optimizer, parts.precision, TrainState(step=step))
    return checkpoints.folder / "last.pt"


def test_what_is_saved_is_loaded(checkpoints: CheckpointFolder, parts: Parts) -> None:
    parts.objective.model.normalisation.set_statistics(torch.full((20,), 2.0), torch.full((20,), 3.0))
    loaded = load_checkpoint(save(checkpoints, parts, 7))
    assert (loaded.step, loaded.config, loaded.tokenizer, loaded.vocab_size) == (7, CONFIG, checkpoints.tokenizer, 6)
    assert set(loaded.heads) == {"ctc_head.weight", "ctc_head.bias"}
    model = tiny_objective().model
    restore_model(model, loaded)
    assert model.normalisation.mean.tolist() == [2.0] * 20
    for name, tensor in parts.objective.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)


def test_the_safe_loader_reads_it_and_finds_no_prefixes(checkpoints: CheckpointFolder, parts: Parts) -> None:
    content = torch.load(save(checkpoints, parts, 1), weights_only=True)
    assert set(content["model"]) == set(parts.objective.model.state_dict())


@pytest.mark.parametrize("length", [0, 10, 0.5, -1])
def test_a_truncated_newest_checkpoint_is_passed_over_by_name(
    checkpoints: CheckpointFolder, parts: Parts, length: float
) -> None:
    save(checkpoints, parts, 1)
    last = save(checkpoints, parts, 2)
    content = last.read_bytes()
    last.write_bytes(content[: int(len(content) * length) if length == 0.5 else int(length)])
    said: list[str] = []
    loaded = load_newest(checkpoints.folder, said.append)
    assert loaded is not None
    assert loaded.step == 1
    assert len(said) == 1
    assert "passed over" in said[0]
    assert "last.pt is not a readable checkpoint" in said[0]


def test_no_readable_checkpoint_is_an_error_and_none_at_all_is_not(checkpoints: CheckpointFolder, parts: Parts) -> None:
    assert load_newest(checkpoints.folder, print) is None
    save(checkpoints, parts, 1).write_bytes(b"")
    with pytest.raises(ValueError, match="no readable checkpoint"):
        load_newest(checkpoints.folder, lambda _: None)


def test_between_two_renames_the_older_one_is_found(checkpoints: CheckpointFolder, parts: Parts) -> None:
    save(checkpoints, parts, 1)
    save(checkpoints, parts, 2).unlink()
    loaded = load_newest(checkpoints.folder, print)
    assert loaded is not None
    assert loaded.step == 1


def test_a_full_disk_leaves_the_older_checkpoint_and_no_remains(checkpoints: CheckpointFolder, parts: Parts) -> None:
    last = save(checkpoints, parts, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match=r"last\.pt could not be written \(File too large\).*make room and resume"):
            save(checkpoints, parts, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert load_checkpoint(last).step == 1
    assert [path.name for path in checkpoints.folder.iterdir()] == ["last.pt"]


def test_a_model_that_differs_is_refused_with_names(checkpoints: CheckpointFolder, parts: Parts) -> None:
    loaded = load_checkpoint(save(checkpoints, parts, 1))
    with pytest.raises(ValueError, match=r"tokenizer\.vocab_size=7 differs from the 6 of .*last\.pt"):
        restore_model(tiny_objective(vocab_size=7).model, loaded)
    bias = loaded.model.pop("joiner.output.bias")
    with pytest.raises(ValueError, match=r"missing joiner\.output\.bias; use the config"):
        restore_model(tiny_objective().model, loaded)
    loaded.model["joiner.output.bias"] = bias[:-1]
    loaded.model["module.extra"] = bias
    with pytest.raises(ValueError, match=r"unexpected module\.extra; joiner\.output\.bias is \[5\], not \[6\]"):
        restore_model(tiny_objective().model, loaded)


def test_training_with_another_loss_is_refused_with_names(checkpoints: CheckpointFolder, parts: Parts) -> None:
    loaded = load_checkpoint(save(checkpoints, parts, 1))
    other = tiny_parts(parts.world, tiny_objective(LossConfig()))
    with pytest.raises(ValueError, match=r"unexpected ctc_head\.weight"):
        restore_training(loaded, other.objective, other.optimizer, other.precision, world_size=1)


def test_a_run_folder_means_its_best_checkpoint_or_the_newest(
    checkpoints: CheckpointFolder, parts: Parts, tmp_path: Path
) -> None:
    last = save(checkpoints, parts, 1)
    assert find_checkpoint(tmp_path) == find_checkpoint(checkpoints.folder) == last
    checkpoints.save_best(parts.objective, parts.optimizer, parts.precision, TrainState(step=1))
    assert find_checkpoint(tmp_path) == checkpoints.folder / "best.pt"
    assert find_checkpoint(tmp_path, prefer="last.pt") == find_checkpoint(last) == last


def test_what_is_no_checkpoint_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"checkpoint=.*nowhere does not exist; give a run folder"):
        find_checkpoint(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"holds no checkpoints/best\.pt or last\.pt"):
        find_checkpoint(tmp_path)
    text = tmp_path / "notes.pt"
    text.write_text("not a checkpoint")
    with pytest.raises(ValueError, match=r"notes\.pt is not a readable checkpoint"):
        load_checkpoint(find_checkpoint(text))
    torch.save({"weights": torch.ones(1)}, text)
    with pytest.raises(ValueError, match=r"notes\.pt is not a readable checkpoint"):
        load_checkpoint(text)
