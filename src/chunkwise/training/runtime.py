"""How a command runs: processes, threads and the device."""

import os
from dataclasses import dataclass
from enum import StrEnum

import torch

from chunkwise.training.place import Place


class Device(StrEnum):
    """Where tensors live; `auto` takes CUDA where there is one."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """Processes, threads and the device."""

    processes: int = 1  # workers that a plainly started command launches on this machine
    threads: int | None = None  # torch threads per process; null: OMP_NUM_THREADS, else cores / processes
    device: Device = Device.auto
    timeout_s: float = 600.0  # the longest wait for another rank
    compile: bool = False  # training steps under torch.compile
    dry_run: bool = False  # compose, validate, print what would run, exit

    def __post_init__(self) -> None:
        """Refuse a group that cannot be formed."""
        if self.processes < 1:
            raise ValueError(f"runtime.processes={self.processes} must be at least 1; try 1 or 2")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"runtime.threads={self.threads} must be at least 1; try null")
        if self.timeout_s <= 0:
            raise ValueError(f"runtime.timeout_s={self.timeout_s} must be positive; try 600")


def threads_per_process(config: RuntimeConfig, processes: int) -> int:
    """Torch threads for each process of this machine: as configured, else OMP_NUM_THREADS, else its share of cores."""
    if config.threads is not None:
        return config.threads
    if os.environ.get("OMP_NUM_THREADS", "").isdigit():
        return max(1, int(os.environ["OMP_NUM_THREADS"]))
    return max(1, len(os.sched_getaffinity(0)) // processes)


def chosen_device(config: RuntimeConfig, place: Place) -> torch.device:
    """The device of the process at this place; a ValueError where there is none."""
    if config.device is Device.cpu or (config.device is Device.auto and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError("runtime.device=cuda, but torch sees no CUDA device; try runtime.device=cpu")
    if place.local_rank >= torch.cuda.device_count():
        raise ValueError(
            f"runtime.processes={place.local_size} needs as many CUDA devices, but torch sees "
            f"{torch.cuda.device_count()}; try runtime.processes={torch.cuda.device_count()} or runtime.device=cpu"
        )
    return torch.device("cuda", place.local_rank)
