"""The process group, and the gathering of metrics over it: the only module that knows torch's collectives.

A `World` of one process behaves like a larger one, so nobody else asks how many processes there are. Every wait for
another rank ends within `runtime.timeout_s`, and is told while it lasts and when it fails, by the late rank's name.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType

import torch
from jaxtyping import Float, Int
from torch import Tensor, distributed, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from chunkwise.training.place import Place, found_place
from chunkwise.training.roll_call import RollCall
from chunkwise.training.runtime import RuntimeConfig, chosen_device, threads_per_process

PACKET_CHARACTERS = 2**20
"""About how much text is sent at once."""


@dataclass(frozen=True, slots=True)
class World:
    """The processes that train together, seen from one of them."""

    rank: int
    size: int
    device: torch.device
    roll: RollCall | None = None  # of more than one

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
        """Every rank's tensor, on rank 0; their first dimensions may differ. `None` on the other ranks.

        Rank 0 receives each rank's rows into a tensor of their size: nothing is padded, and nobody else gets a copy.
        """
        if self.size == 1:
            return [rows]
        here = torch.zeros(self.size, dtype=torch.int64)
        here[self.rank] = len(rows)
        lengths = self._sum(here).tolist()
        with self._meeting():
            if not self.is_main:
                distributed.send(rows.contiguous(), dst=0)
                return None
            parts = [rows, *(rows.new_empty(length, *rows.shape[1:]) for length in lengths[1:])]
            for rank in range(1, self.size):
                distributed.recv(parts[rank], src=rank)
        return parts

    def gather_texts(self, texts: Sequence[str]) -> list[str] | None:
        """All ranks' texts in rank order, on rank 0; `None` elsewhere.

        They travel in packets, so that beside the texts themselves rank 0 never holds more than a packet.
        """
        if self.size == 1:
            return list(texts)
        packets = list(_packets(texts))
        here = torch.zeros(self.size, dtype=torch.int64)
        here[self.rank] = len(packets)
        counts = self._sum(here).tolist()
        gathered = list(texts)
        with self._meeting():
            if not self.is_main:
                for packet in packets:
                    _send_text(json.dumps(packet, ensure_ascii=False))
                return None
            for rank in range(1, self.size):
                for _ in range(counts[rank]):
                    gathered += json.loads(_receive_text(rank))
        return gathered

    def share_text(self, text: str) -> str:
        """Rank 0's text, on every rank."""
        if self.size == 1:
            return text
        encoded = _encode(text)
        length = torch.tensor([len(encoded)])
        with self._meeting():
            distributed.broadcast(length, src=0)
            if not self.is_main:
                encoded = torch.empty(int(length), dtype=torch.uint8)
            distributed.broadcast(encoded, src=0)
        return _decode(encoded)

    def deal(self, count: int) -> Iterator[int]:
        """The numbers from 0 to `count` that fall to this rank: each to the rank that first asks for it.

        Every rank calls this, and takes what it does not get from the others as done.
        """
        if self.roll is None:
            yield from range(count)
            return
        pile = self.roll.new_pile()
        while (number := self._draw(self.roll, pile)) < count:
            yield number

    def sign(self, doing: str) -> None:
        """Say what this rank does from now on; who waits for it hears this: `decoding batch 3 of 7`."""
        if self.roll is not None:
            self.roll.sign(doing)

    def barrier(self, purpose: str) -> None:
        """Wait, with an end, until every rank is here; the purpose is what those who wait are said to do."""
        self.sign(purpose)
        self._sum(torch.zeros(1, dtype=torch.int64))

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module to call in training: its gradients are averaged over the ranks."""
        if self.size == 1:
            return module
        devices = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=devices)

    def accumulating(self, module: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of one micro-batch: only the window's last one exchanges gradients."""
        if not isinstance(module, DistributedDataParallel):
            return nullcontext()
        return self._meeting() if last else module.no_sync()

    def close(self) -> None:
        """Leave the group."""
        if self.roll is not None:
            self.roll.close()
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
            with self._meeting():
                distributed.all_reduce(values)
                if values.is_cuda:
                    torch.cuda.synchronize()  # here is where the others are waited for, and nowhere unnamed
        return values

    def _draw(self, roll: RollCall, pile: str) -> int:
        try:
            return roll.draw(pile)
        except RuntimeError as error:
            raise (roll.absence() or error) from error

    def _meeting(self) -> AbstractContextManager[None]:
        """Around what all ranks do together."""
        return nullcontext() if self.roll is None else _meeting(self.roll)


@contextmanager
def _meeting(roll: RollCall) -> Iterator[None]:
    """A meeting of all ranks: a long wait for one is told, and a lost connection is raised by the lost rank's name."""
    roll.begin_meeting()
    try:
        yield
    except RuntimeError as error:
        if not _lost_contact(error) or (absence := roll.absence()) is None:
            raise
        raise absence from error
    finally:
        roll.end_meeting()


def _lost_contact(error: RuntimeError) -> bool:
    """Whether an error is about the connection: gloo has no exceptions of its own, but names its source files."""
    return isinstance(error, distributed.DistError) or "gloo" in str(error)


def _packets(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts in order, in parts of about `PACKET_CHARACTERS`."""
    start, size = 0, 0
    for end, text in enumerate(texts, start=1):
        size += len(text)
        if size >= PACKET_CHARACTERS or end == len(texts):
            yield texts[start:end]
            start, size = end, 0


def _send_text(text: str) -> None:
    encoded = _encode(text)
    distributed.send(torch.tensor([len(encoded)]), dst=0)
    distributed.send(encoded, dst=0)


def _receive_text(rank: int) -> str:
    length = torch.empty(1, dtype=torch.int64)
    distributed.recv(length, src=rank)
    encoded = torch.empty(int(length), dtype=torch.uint8)
    distributed.recv(encoded, src=rank)
    return _decode(encoded)


def _encode(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8) if text else torch.empty(0, dtype=torch.uint8)


def _decode(encoded: Tensor) -> str:
    return encoded.numpy().tobytes().decode()


def open_world(config: RuntimeConfig) -> World:
    """This process's place in the group that torchrun, Slurm or `launch` made, or a world of its own."""
    place = found_place()
    torch.set_num_threads(threads_per_process(config, place.local_size))
    device = chosen_device(config, place)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    roll = _join_group(config, place, device) if place.size > 1 else None
    return World(place.rank, place.size, device, roll)


def _join_group(config: RuntimeConfig, place: Place, device: torch.device) -> RollCall:
    """Become a rank of the process group; returns its roll."""
    timeout = timedelta(seconds=config.timeout_s)
    meeting_point = next(rendezvous(place.meeting_point, place.rank, place.size, timeout=timeout))
    store = PrefixStore("chunkwise", meeting_point[0])
    patience_s = min(10.0, config.timeout_s / 4)
    roll = RollCall(store.clone(), place.rank, place.size, patience_s=patience_s)
    roll.sign("joining the group")
    with _meeting(roll):
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=place.rank,
            world_size=place.size,
            timeout=timeout,
        )
    return roll
