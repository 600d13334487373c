"""What the worker processes of these tests run; a module of its own, so that a new process loads little."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from chunkwise.training.distributed import open_world
from chunkwise.training.runtime import RuntimeConfig


def collectives(config: RuntimeConfig) -> dict[str, Any]:
    with open_world(config) as world:
        mine = torch.arange(3 * world.rank, dtype=torch.float32).reshape(world.rank, 3)
        ragged = world.gather_ragged(mine)
        texts = world.gather_texts([f"rank {world.rank}", "ein Ää"] * world.rank + ["last"])
        big = 2**40 + world.rank
        world.barrier()
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
        world.barrier()
        time.sleep(60)
