"""Checkpoints: files of plain values and tensors, replaced whole or not at all, and loaded strictly.

A run keeps `checkpoints/last.pt` (the newest state), `previous.pt` (the one before it, should the newest be
unreadable) and `best.pt` (the best by validation).
"""

import io
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from chunkwise.losses.objective import Objective
from chunkwise.models.transducer import Transducer
from chunkwise.training.precision import Precision
from chunkwise.training.state import TrainState

VERSION = 1
LAST, PREVIOUS, BEST = "last.pt", "previous.pt", "best.pt"
MODEL_PREFIX = "model."
UNREADABLE = (RuntimeError, EOFError, OSError, KeyError, ValueError, pickle.UnpicklingError)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a file holds: enough to recognise speech, and enough to go on training."""

    path: Path
    step: int
    config: dict[str, Any]  # the run's whole config, in plain types
    vocab_size: int
    tokenizer: bytes
    model: dict[str, Tensor]  # the Transducer, feature statistics included
    heads: dict[str, Tensor]  # what only training needs
    optimizer: dict[str, Any]
    precision: dict[str, Any]
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """Where a run's checkpoints go, and what stands in each of them besides the training state."""

    folder: Path
    config: dict[str, Any]
    tokenizer: bytes

    def save(self, objective: Objective, optimizer: Optimizer, precision: Precision, state: TrainState) -> None:
        """Keep the newest state as `last.pt`, and the one before it as `previous.pt`."""
        content = self._content(objective, optimizer, precision, state)
        last = self.folder / LAST
        write_whole(last, content, before_rename=lambda: last.exists() and last.replace(self.folder / PREVIOUS))

    def save_best(self, objective: Objective, optimizer: Optimizer, precision: Precision, state: TrainState) -> None:
        """Keep this state as `best.pt`."""
        write_whole(self.folder / BEST, self._content(objective, optimizer, precision, state))

    def _content(
        self, objective: Objective, optimizer: Optimizer, precision: Precision, state: TrainState
    ) -> dict[str, Any]:
        weights = {name: tensor.detach() for name, tensor in objective.state_dict().items()}
        return {
            "version": VERSION,
            "step": state.step,
            "config": self.config,
            "vocab_size": objective.model.config.vocab_size,
            "tokenizer": torch.frombuffer(bytearray(self.tokenizer), dtype=torch.uint8),
            "model": {
                name.removeprefix(MODEL_PREFIX): tensor
                for name, tensor in weights.items()
                if name.startswith(MODEL_PREFIX)
            },
            "heads": {name: tensor for name, tensor in weights.items() if not name.startswith(MODEL_PREFIX)},
            "optimizer": optimizer.state_dict(),
            "precision": precision.state_dict(),
            "state": state.to_dict(),
        }


def write_whole(path: Path, content: Mapping[str, Any], before_rename: Callable[[], Any] = lambda: None) -> None:
    """Write a file that is either complete or absent, whatever happens meanwhile."""
    buffer = io.BytesIO()
    torch.save(dict(content), buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        before_rename()
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        reason = error.strerror or error
        raise OSError(
            f"{path} could not be written ({reason}); the checkpoint before it is whole: make room and resume"
        ) from error
    _sync_folder(path.parent)


def find_checkpoint(path: Path, prefer: str = BEST) -> Path:
    """The checkpoint file that a path means: the file itself, or the best (else the newest) one of a run folder."""
    if path.is_file():
        return path
    if not path.exists():
        raise FileNotFoundError(f"checkpoint={path} does not exist; give a run folder or a checkpoint file")
    order = [prefer, *(name for name in (BEST, LAST, PREVIOUS) if name != prefer)]
    for folder in (path / "checkpoints", path):
        for name in order:
            if (folder / name).is_file():
                return folder / name
    raise FileNotFoundError(
        f"checkpoint={path} holds no checkpoints/{BEST} or {LAST}; give the folder of a run that saved one"
    )


def load_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a file, on the CPU."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content["version"] != VERSION:
            raise ValueError(f"it has format {content['version']}, not {VERSION}")
        tokenizer = bytes(content["tokenizer"].numpy())
        names = ("step", "config", "vocab_size", "model", "heads", "optimizer", "precision", "state")
        return Checkpoint(path=path, tokenizer=tokenizer, **{name: content[name] for name in names})
    except (*UNREADABLE, TypeError) as error:
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(
                f"checkpoint={path} does not exist; give a run folder or a checkpoint file"
            ) from None
        raise ValueError(f"{path} is not a readable checkpoint ({_short(error)}); give another one") from error


def load_newest(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest readable checkpoint of a `checkpoints/` folder, `None` if it has none; says which it passed over."""
    files = [folder / name for name in (LAST, PREVIOUS) if (folder / name).is_file()]
    for path in files:
        try:
            return load_checkpoint(path)
        except ValueError as error:
            say(f"passed over: {error}")
    if files:
        raise ValueError(
            f"{folder} holds no readable checkpoint; start again without resume=true, or in another hydra.run.dir"
        )
    return None


def restore_model(model: Transducer, checkpoint: Checkpoint) -> None:
    """Load the weights into a model that has exactly their names and shapes."""
    _check_vocabulary(model, checkpoint)
    _check_names(model.state_dict(), checkpoint.model, checkpoint.path)
    model.load_state_dict(checkpoint.model)


def restore_training(
    checkpoint: Checkpoint, objective: Objective, optimizer: Optimizer, precision: Precision, world_size: int
) -> tuple[TrainState, str | None]:
    """Put everything back where it stood; returns the state and, where a changed option is ignored, a notice."""
    state = TrainState.from_dict(checkpoint.state)
    if state.world_size != world_size:
        raise ValueError(
            f"runtime.processes={world_size} differs from the {state.world_size} of {checkpoint.path}, and with it the "
            f"steps' batches; resume with runtime.processes={state.world_size}, or start another run"
        )
    _check_vocabulary(objective.model, checkpoint)
    weights = {f"{MODEL_PREFIX}{name}": tensor for name, tensor in checkpoint.model.items()} | checkpoint.heads
    _check_names(objective.state_dict(), weights, checkpoint.path)
    notice = precision.load_state_dict(checkpoint.precision)
    objective.load_state_dict(weights)
    optimizer.load_state_dict(checkpoint.optimizer)
    return state, notice


def _check_vocabulary(model: Transducer, checkpoint: Checkpoint) -> None:
    if model.config.vocab_size != checkpoint.vocab_size:
        raise ValueError(
            f"tokenizer.vocab_size={model.config.vocab_size} differs from the {checkpoint.vocab_size} of "
            f"{checkpoint.path}; use the tokenizer that the checkpoint was trained with"
        )


def _check_names(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], path: Path) -> None:
    faults = [f"missing {name}" for name in expected if name not in found]
    faults += [f"unexpected {name}" for name in found if name not in expected]
    faults += [
        f"{name} is {list(found[name].shape)}, not {list(tensor.shape)}"
        for name, tensor in expected.items()
        if name in found and found[name].shape != tensor.shape
    ]
    if faults:
        more = f" and {len(faults) - 4} more" if len(faults) > 4 else ""
        raise ValueError(
            f"{path} does not fit the model: {'; '.join(faults[:4])}{more}; use the config it was trained with"
        )


def _short(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:120]}" if lines else type(error).__name__


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
