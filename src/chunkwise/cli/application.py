"""What every console script does around its own work: Hydra, validation, dry runs, and errors in one sentence."""

import logging
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import hydra
import psutil
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from chunkwise.config import COMMANDS, conf_dir, read, register, to_yaml
from chunkwise.evaluation.run_folder import evaluation_name
from chunkwise.models.context import ChunkContext
from chunkwise.training.checkpoint import find_checkpoint
from chunkwise.training.roll_call import RankError

USER_ERRORS = (ValueError, OSError, RankError, HydraException, OmegaConfBaseException)
FULL_ERRORS = os.environ.get("HYDRA_FULL_ERROR") == "1"
"""Whether the user asked where errors are raised."""

DETAILS = ("full_key:", "reference_type=", "object_type=", "To append to your config", "Config search path:")
"""Starts of lines in Hydra's errors that tell the user nothing, or nothing true: what is appended is refused."""

Run = Callable[[Any, Path, str], None]
"""A command's work: its config, its output folder and the command line."""


def application(command: str, run: Run) -> Callable[[], None]:
    """The console script `chunkwise-COMMAND`."""

    def task(node: DictConfig) -> None:
        with one_sentence_errors(raise_again=HydraConfig.get().mode is RunMode.MULTIRUN):
            config = read(COMMANDS[command], node)
            if config.runtime.compile and command != "train":
                raise ValueError(
                    "runtime.compile=true compiles training steps, and this command has none; leave it out"
                )
            line = " ".join([f"chunkwise-{command}", *HydraConfig.get().overrides.task])
            folder = Path(HydraConfig.get().runtime.output_dir)
            os.chdir(HydraConfig.get().runtime.cwd)  # paths count from the launch folder, whatever hydra.job.chdir says
            if config.runtime.dry_run:
                print(f"{to_yaml(config)}\nwould run: {line}\noutput folder: {folder}")
                return
            run(config, folder, line)

    def main() -> None:
        register()
        OmegaConf.register_new_resolver("evaluations", _evaluations, replace=True)
        OmegaConf.register_new_resolver("dependencies", _dependencies, replace=True)
        OmegaConf.register_new_resolver("evaluation", _evaluation, replace=True)
        OmegaConf.register_new_resolver("context", _context, replace=True)
        OmegaConf.register_new_resolver("launch_time", _launch_time, replace=True)
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors, and they are told as all others are
        with one_sentence_errors(raise_again=False):
            hydra.main(version_base="1.3", config_path=conf_dir(), config_name=command)(task)()

    return main


@contextmanager
def one_sentence_errors(raise_again: bool) -> Iterator[None]:
    """A context in which a user's mistake ends the program with one sentence and exit code 1.

    In a sweep (`raise_again`) the job's own log gets the error and Hydra goes on with the next job.
    `HYDRA_FULL_ERROR=1` shows where the error was raised.
    """
    try:
        yield
    except Exception as error:
        if raise_again:
            logging.getLogger("chunkwise").exception("the job failed: %s", error)
            raise
        if not isinstance(error, USER_ERRORS) or FULL_ERRORS:
            raise
        print(f"error: {_sentence(error)}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _sentence(error: Exception) -> str:
    """The error's message; what Hydra and OmegaConf say in many lines, on one."""
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return str(error)
    cause = error.__cause__
    said = f"{error}\n{cause}" if isinstance(cause, OmegaConfBaseException) else str(error)
    lines = [line.strip() for line in said.replace(":\n\t", ": ").replace("\n\t", ", ").splitlines()]
    told = [line.rstrip(".") for line in lines if line and not line.startswith(DETAILS)]
    return "; ".join([*dict.fromkeys(told), "see --help"])


def _evaluations(checkpoint: str | None, compare: Sequence[str] = ()) -> str:
    """Where the evaluations of a checkpoint go: a folder of its run; comparisons of two have their own."""
    with one_sentence_errors(raise_again=False):
        if compare:
            return "runs/comparisons"
        if checkpoint is None:
            raise ValueError("checkpoint=null must name a run folder or a checkpoint file; try checkpoint=runs/demo")
        found = find_checkpoint(Path(checkpoint))
        if not zipfile.is_zipfile(found):  # before a folder for results is made beside it
            raise ValueError(f"checkpoint={found} is not a checkpoint; give a run folder or a file of its checkpoints/")
        return str(_run_folder(found) / "evaluations")


def _dependencies(checkpoint: str | None) -> str:
    """Where the dependency analyses of a checkpoint go: a folder of its run; those of random weights have their own."""
    return "runs/dependencies" if checkpoint is None else str(Path(_evaluations(checkpoint)).parent / "dependencies")


def _run_folder(checkpoint: Path) -> Path:
    return checkpoint.parents[1] if checkpoint.parent.name == "checkpoints" else checkpoint.parent


def _evaluation(*, _root_: DictConfig) -> str:
    """The name of the folder that `chunkwise-evaluate` writes."""
    if _root_.compare:
        return _launch_time()
    chunking, config = _root_.chunking, _root_.eval
    label = "grid" if config.contexts.chunk_frames else _context(chunking.chunk_frames, chunking.left_chunks)
    return evaluation_name(config.split, label, config.path)


def _context(chunk_frames: int | None, left_chunks: int | None) -> str:
    """The name of a context in a folder's name."""
    with one_sentence_errors(raise_again=False):
        return ChunkContext(chunk_frames, left_chunks).label


def _launch_time() -> str:
    """When this command was started, to the microsecond; the ranks that one torchrun started agree on it."""
    started = datetime.now()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        started = datetime.fromtimestamp(psutil.Process(os.getppid()).create_time())
    return started.strftime("%Y-%m-%d_%H-%M-%S-%f")
