"""The process group, and how a plainly started command gets one: the only module that knows `torch.distributed`.

A `World` of one process behaves like a larger one, so nobody else asks how many processes there are.
"""

import json
import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, distributed, nn
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.nn.parallel import DistributedDataParallel

from chunkwise.training.place import GROUP_VARIABLE, found_place
from chunkwise.training.runtime import RuntimeConfig, chosen_device, threads_per_process

Result = TypeVar("Result")

USER_ERRORS = (ValueError, OSError)
"""Exceptions whose sentence is enough; of any other kind the user also needs the traceback."""

FIRST_STEP = "torch._dynamo"
"""What torch imports, for two seconds, when an optimizer takes its first step."""


class RankError(RuntimeError):
    """One worker's failure, as a sentence that names its rank; a programming error has its traceback as a note."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


@dataclass(frozen=True, slots=True)
class World:
    """The processes that train together, seen from one of them."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that writes results."""
        return self.rank == 0

    def sum_counts(self, counts: Int[Tensor, " counts"]) -> Int[Tensor, " counts"]:
        """The int64 counts added over all ranks."""
        return self._sum(counts.to(torch.int64, copy=True))

    def sum_values(self, values: Float[Tensor, " values"]) -> Float[Tensor, " values"]:
        """The values added over all ranks in float64."""
        return self._sum(values.to(torch.float64, copy=True))

    def gather_ragged(self, rows: Tensor) -> list[Tensor] | None:
        """Every rank's tensor, on rank 0; their first dimensions may differ. `None` on the other ranks."""
        if self.size == 1:
            return [rows]
        here = torch.zeros(self.size, dtype=torch.int64)
        here[self.rank] = len(rows)
        lengths = self._sum(here).tolist()
        padded = rows.new_zeros(max(lengths), *rows.shape[1:])
        padded[: len(rows)] = rows
        received = [torch.empty_like(padded) for _ in lengths] if self.is_main else None
        distributed.gather(padded, received, dst=0)
        return None if received is None else [part[:length] for part, length in zip(received, lengths, strict=True)]

    def gather_texts(self, texts: Sequence[str]) -> list[str] | None:
        """All ranks' texts in rank order, on rank 0; `None` elsewhere."""
        encoded = torch.frombuffer(bytearray(json.dumps(list(texts)).encode()), dtype=torch.uint8)
        parts = self.gather_ragged(encoded)
        return None if parts is None else [text for part in parts for text in json.loads(bytes(part.tolist()))]

    def share_text(self, text: str) -> str:
        """Rank 0's text, on every rank."""
        encoded = torch.tensor(list(text.encode()) if self.is_main else [], dtype=torch.int64)
        size = int(self._sum(torch.tensor([len(encoded)])))
        shared = self._sum(torch.cat((encoded, encoded.new_zeros(size - len(encoded)))))
        return bytes(shared.tolist()).decode()

    def barrier(self) -> None:
        """Wait, with an end, until every rank is here."""
        self._sum(torch.zeros(1, dtype=torch.int64))

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module to call in training: its gradients are averaged over the ranks."""
        if self.size == 1:
            return module
        devices = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=devices)

    def accumulating(self, module: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of one micro-batch: only the window's last one exchanges gradients."""
        return nullcontext() if last or not isinstance(module, DistributedDataParallel) else module.no_sync()

    def close(self) -> None:
        """Leave the group."""
        if self.size > 1 and distributed.is_initialized():
            distributed.destroy_process_group()

    def __enter__(self) -> "World":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:  # a rank that fails leaves by ending: nobody hears of it before its report is written
            self.close()

    def _sum(self, values: Tensor) -> Tensor:
        if self.size > 1:
            distributed.all_reduce(values)
        return values


def open_world(config: RuntimeConfig) -> World:
    """This process's place in the group that torchrun, Slurm or `launch` made, or a world of its own."""
    place = found_place()
    torch.set_num_threads(threads_per_process(config, place.local_size))
    device = chosen_device(config, place)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if place.size > 1:
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            init_method=place.meeting_point,
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=config.timeout_s),
        )
    return World(place.rank, place.size, device)


def launch(config: RuntimeConfig, function: Callable[..., Result], *args: Any) -> Result:
    """Run `function(*args)` in `runtime.processes` new processes, and return what rank 0 returned.

    The function opens its world itself. With one process, and inside torchrun or a Slurm step, it is called right
    here. The first failure ends all workers and is raised as one `RankError`; they also end when this process does.

    The workers are forks of one server, which has imported the function's module once for all of them and for the
    launches that follow.
    """
    if config.processes == 1 or found_place().size > 1:
        return function(*args)
    _check_pickles(function, args)
    # heard only before the first launch
    multiprocessing.set_forkserver_preload([__name__, function.__module__, FIRST_STEP])
    with tempfile.TemporaryDirectory(prefix="chunkwise-launch-") as reports, _untouched_process(config):
        workers = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=config.processes,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",  # port 0: the system picks a free one
            max_restarts=0,
            start_method="forkserver",
            logs_specs=DefaultLogsSpecs(log_dir=reports),
            shutdown_timeout=10,
        )
        try:
            results = elastic_launch(workers, _worker)(function, args, reports, dict(os.environ))
        except ChildFailedError as failure:
            raise _first_failure(failure, Path(reports), config.processes) from None
        except SignalException as stop:
            if stop.sigval is signal.SIGINT:
                raise KeyboardInterrupt from None
            raise SystemExit(128 + stop.sigval) from None
    return results[0]


def _worker(
    function: Callable[..., Result], args: tuple[Any, ...], reports: str, environment: dict[str, str]
) -> Result:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C is the parent's to report
    threading.Thread(target=_end_with_the_launcher, daemon=True).start()
    of_the_group = {name: value for name, value in os.environ.items() if GROUP_VARIABLE.fullmatch(name)}
    os.environ.clear()  # what the server was started with may be out of date
    os.environ.update(environment | of_the_group)
    try:
        return function(*args)
    except Exception as error:
        rank = os.environ["RANK"]
        report = {
            "time": time.time(),
            "sentence": f"{type(error).__name__}: {error}",
            "traceback": None if isinstance(error, USER_ERRORS) else traceback.format_exc(),
        }
        unfinished = Path(reports, f"rank-{rank}.unfinished")
        unfinished.write_text(json.dumps(report), encoding="utf-8")
        unfinished.rename(Path(reports, f"rank-{rank}.json"))
        if isinstance(error, RuntimeError):
            time.sleep(1)  # it may only have lost contact: let the launcher meet the cause first, and end this process
        raise


def _end_with_the_launcher() -> None:
    """Send this process SIGTERM when the one that launched it is gone, even if it was killed."""
    launcher = multiprocessing.parent_process()
    if launcher is not None:
        multiprocessing.connection.wait([launcher.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def _first_failure(failure: ChildFailedError, reports: Path, size: int) -> RankError:
    """The failure that came first: others only lost their connection to it."""
    told = {
        int(path.stem.removeprefix("rank-")): json.loads(path.read_text(encoding="utf-8"))
        for path in reports.glob("rank-*.json")
    }
    for rank, process in failure.failures.items():
        if rank not in told and process.exitcode < 0:
            name = signal.Signals(-process.exitcode).name
            hint = "; the machine may have run out of memory" if name == "SIGKILL" else ""
            return RankError(f"rank {rank} of {size} was ended by {name}{hint}", rank)
    if not told:
        rank, process = failure.get_first_failure()
        return RankError(f"rank {rank} of {size} ended with exit code {process.exitcode}", rank)
    rank = min(told, key=lambda rank: told[rank]["time"])
    error = RankError(f"rank {rank} of {size}: {told[rank]['sentence']}", rank)
    if told[rank]["traceback"]:
        error.add_note(told[rank]["traceback"])
    return error


def _check_pickles(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        pickle.dumps((function, args))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{function.__qualname__} cannot be sent to new processes ({error}); "
            f"give launch() a function of a module and plain arguments"
        ) from None


@contextmanager
def _untouched_process(config: RuntimeConfig) -> Iterator[None]:
    """Undo what the launcher does to this process: environment, signal handlers, log lines."""
    environment = dict(os.environ)
    handlers = {
        number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    }
    logger = logging.getLogger("torch.distributed.elastic")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # failures are told once, by RankError
    # read where the workers' libraries are loaded
    os.environ["OMP_NUM_THREADS"] = str(threads_per_process(config, config.processes))
    try:
        yield
    finally:
        logger.setLevel(level)
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        os.environ.clear()
        os.environ.update(environment)
