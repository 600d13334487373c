"""How a plainly started command gets processes: through torch's elastic launcher, which torchrun runs too."""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from chunkwise.training.place import GROUP_VARIABLE, found_place
from chunkwise.training.roll_call import RankError
from chunkwise.training.runtime import RuntimeConfig, threads_per_process

Result = TypeVar("Result")

USER_ERRORS = (ValueError, OSError)
"""Exceptions whose sentence is enough; of any other kind the user also needs the traceback."""

FIRST_STEP = "torch._dynamo"
"""What torch imports, for two seconds, when an optimizer takes its first step."""


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
            "rank": error.rank if isinstance(error, RankError) else int(rank),
            "sentence": str(error) if isinstance(error, RankError) else f"{type(error).__name__}: {error}",
            "traceback": None if isinstance(error, (*USER_ERRORS, RankError)) else traceback.format_exc(),
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
    sentence, culprit = told[rank]["sentence"], told[rank]["rank"]
    error = RankError(sentence if culprit != rank else f"rank {rank} of {size}: {sentence}", culprit)
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
