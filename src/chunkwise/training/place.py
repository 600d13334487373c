"""Where this process stands among others, as the environment tells it."""

import os
import re
from dataclasses import dataclass

GROUP_VARIABLE = re.compile(r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|TORCHELASTIC_\w+")
"""The names of the variables by which a launcher gives each process its place."""


@dataclass(frozen=True, slots=True)
class Place:
    """A process's number among all of them and on its own machine."""

    rank: int = 0
    local_rank: int = 0
    size: int = 1
    local_size: int = 1
    meeting_point: str = "env://"  # the address at which the processes find each other


def found_place() -> Place:
    """The place that torchrun's variables give, else those of a Slurm step, else that of a single process.

    Left-overs that do not make a whole (a `RANK` without `MASTER_ADDR`) count for nothing.
    """
    environment = os.environ
    if all(name in environment for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        return Place(
            rank=int(environment["RANK"]),
            local_rank=int(environment.get("LOCAL_RANK", "0")),
            size=int(environment["WORLD_SIZE"]),
            local_size=int(environment.get("LOCAL_WORLD_SIZE", "1")),
        )
    size = int(environment.get("SLURM_STEP_NUM_TASKS", "1"))
    if size == 1:
        return Place()
    address = environment.get("MASTER_ADDR", first_host(environment["SLURM_STEP_NODELIST"]))
    port = environment.get("MASTER_PORT", str(20_000 + int(environment["SLURM_JOB_ID"]) % 20_000))
    return Place(
        rank=int(environment["SLURM_PROCID"]),
        local_rank=int(environment["SLURM_LOCALID"]),
        size=size,
        local_size=-(-size // int(environment.get("SLURM_STEP_NUM_NODES", "1"))),
        meeting_point=f"tcp://{address}:{port}",
    )


def first_host(nodes: str) -> str:
    """The first machine of a Slurm node list.

    >>> first_host("gpu[003-005,9],big1"), first_host("big1,big2")
    ('gpu003', 'big1')
    """
    match = re.match(r"([^,\[]+)(?:\[(\w+))?", nodes)
    if match is None:
        raise ValueError(f"SLURM_STEP_NODELIST={nodes!r} names no machine; set MASTER_ADDR and MASTER_PORT")
    return match[1] + (match[2] or "")
