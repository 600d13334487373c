"""What the worker processes of these tests run; a module of its own, so that a new process loads little."""

import multiprocessing
import os
import resource
import signal
import socket
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
from torch import nn

from chunkwise.training.distributed import open_world
from chunkwise.training.roll_call import RankError
from chunkwise.training.runtime import RuntimeConfig


def collectives(config: RuntimeConfig) -> dict[str, Any]:
    with open_world(config) as world:
        mine = torch.arange(3 * world.rank, dtype=torch.float32).reshape(world.rank, 3)
        ragged = world.gather_ragged(mine)
        texts = world.gather_texts([f"rank {world.rank}", "ein Ää"] * world.rank + ["last"])
        big = 2**40 + world.rank
        world.barrier("leaving")
        torch.manual_seed(world.rank)  # different weights, which wrapping makes equal
        module = nn.Linear(2, 1, bias=False)
        wrapped = world.wrap(module)
        for last in (False, True):
            with world.accumulating(wrapped, last):
                wrapped(torch.full((1, 2), float(world.rank + 1))).sum().backward()
        assert module.weight.grad is not None
        return {
            "counts": world.sum_counts(torch.tensor([1, big])).tolist(),
            "values": world.sum_values(torch.tensor([0.5, float(world.rank)])).tolist(),
            "ragged": None if ragged is None else [part.shape for part in ragged],
            "texts": texts,
            "gradient": module.weight.grad.tolist(),
            "threads": torch.get_num_threads(),
        }


def environment(*names: str) -> list[str | None]:
    return [os.environ.get(name) for name in names]


def idle(folder: Path) -> None:
    Path(folder, os.environ["RANK"]).write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(120)


def draw_slowly(config: RuntimeConfig, piles: tuple[int, ...]) -> list[list[str]] | None:
    """What each rank drew from piles of so many numbers; rank 0 is slow."""
    with open_world(config) as world:
        drawn = []
        for count in piles:
            mine = list[int]()
            for number in world.deal(count):
                mine.append(number)
                time.sleep(0.1 if world.is_main else 0.01)
            drawn.append(world.gather_texts([f"{world.rank}: {number}" for number in mine]))
        return drawn if world.is_main else None


def fail(config: RuntimeConfig, kind: str) -> None:
    with open_world(config) as world:
        if world.rank == 1:
            match kind:
                case "value":
                    raise ValueError("data.root=/nowhere does not exist; give a folder")
                case "bug":
                    raise KeyError("missing")
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
        world.barrier("leaving")
        time.sleep(60)


def run_group(
    size: int, function: Callable[..., None], *args: Any, lost: int | None = None, timeout_s: float = 100.0
) -> list[int | None]:
    """Run a function as every rank of a group that no launcher watches, as Slurm starts one; the exit codes.

    For a rank that is `lost` nobody waits.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    forks = multiprocessing.get_context("forkserver")
    ranks = [forks.Process(target=_rank, args=(rank, size, port, function, args)) for rank in range(size)]
    end = time.monotonic() + timeout_s
    for process in ranks:
        process.start()
    for rank, process in enumerate(ranks):
        if rank != lost:
            process.join(max(0.0, end - time.monotonic()))
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
        process.join()
    return codes


def _rank(rank: int, size: int, port: int, function: Callable[..., None], args: tuple[Any, ...]) -> None:
    place = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    function(*args)


def suffer(fault: str, delay_s: float) -> None:
    """Die, stop or dawdle, once the roll tells what this rank does."""
    time.sleep(2)
    match fault:
        case "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "dawdles":
            time.sleep(delay_s)
        case _:
            raise ValueError(f"fault={fault} is unknown")


def meet(config: RuntimeConfig, folder: Path, fault: str, culprit: int) -> None:
    """One rank dies, stops or dawdles before a sum; every rank leaves what it heard of that."""
    rank = int(os.environ["RANK"])
    with Path(folder, f"{rank}.err").open("w", encoding="utf-8", buffering=1) as heard, redirect_stderr(heard):
        world = open_world(config)
        world.sign("decoding batch 3 of 7")
        if world.rank == culprit:
            suffer(fault, config.timeout_s / 2)
        try:
            world.barrier("adding up the errors")
            Path(folder, f"{rank}.txt").write_text("met", encoding="utf-8")
        except RankError as error:
            Path(folder, f"{rank}.txt").write_text(str(error), encoding="utf-8")
        if rank == 0:
            time.sleep(2)  # the meeting point stays until the others have asked
        world.close()


def gather_long(config: RuntimeConfig, lines: int) -> dict[str, int] | None:
    """How far rank 0's memory rises in bytes while it gathers, against what the gathered texts hold."""
    with open_world(config) as world:
        world.gather_texts(["warm up"])
        mine = [f"{number:0200}" for number in range(lines)] if world.rank else []
        world.barrier("gathering")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        gathered = world.gather_texts(mine)
        if gathered is None:
            return None
        risen = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert len(gathered) == lines * (world.size - 1)
        return {"risen": 1024 * risen, "payload": sum(map(len, gathered))}
