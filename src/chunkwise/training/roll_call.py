"""Who keeps the others waiting: every rank tells what it does, so that a wait can name those who have not come."""

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol, runtime_checkable

from chunkwise.typing import Seconds

MISSED_BEATS = 3
"""After how many beats without a new one a rank is taken for ended or hanging."""


@runtime_checkable
class Store(Protocol):
    """The part of torch's key-value stores that a roll call uses."""

    def set(self, key: str, value: str, /) -> None:
        """Keep a value under a key."""
        ...

    def get(self, key: str, /) -> bytes:
        """The value under a key."""
        ...

    def add(self, key: str, amount: int, /) -> int:
        """Add to the number under a key, which begins at 0; returns the sum."""
        ...

    def check(self, keys: list[str], /) -> bool:
        """Whether all keys have a value."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One rank's newest line of the roll."""

    rank: int
    beat: int  # counts up as long as the rank's process runs
    meeting: int  # how many meetings of all ranks it has come to
    doing: str


class RankError(RuntimeError):
    """One rank's failure, as a sentence that names it; a programming error has its traceback as a note."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


class RollCall:
    """The roll of a group's ranks, and this rank's line of it, which a thread renews at every beat.

    While a meeting of all ranks waits for longer than the patience, the lowest rank that waits says for whom, and
    again each time the wait has doubled. Nothing of this costs the ranks a message when nobody is late.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        beat_s: Seconds = 1.0,
        patience_s: Seconds = 10.0,
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
    ) -> None:
        """A roll in a store that no other thread uses."""
        self.rank, self.size = rank, size
        self._store, self._beat_s, self._patience_s, self._say = store, beat_s, patience_s, say
        self._beat, self._meeting, self._doing = 0, 0, "starting"
        self._piles = 0
        self._waiting_since: Seconds | None = None
        self._heard: dict[int, tuple[int, Seconds]] = {}  # each rank's beat, and when it was new
        self._lock = threading.Lock()  # of the store
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="roll call", daemon=True)
        self._renew()
        self._thread.start()

    def sign(self, doing: str) -> None:
        """Tell the others what this rank does from now on, as they would say it: `decoding batch 3 of 7`."""
        self._doing = doing

    def begin_meeting(self) -> None:
        """Tell the others that this rank has come to the next meeting."""
        self._meeting += 1
        self._waiting_since = time.monotonic()

    def end_meeting(self) -> None:
        """The meeting is over."""
        self._waiting_since = None

    def new_pile(self) -> str:
        """The name of a pile of numbers from which the ranks draw; each rank asks for the same piles in one order."""
        self._piles += 1
        return f"pile/{self._piles}"

    def draw(self, pile: str) -> int:
        """The next number of a pile, from 0, that no rank has drawn."""
        with self._lock:
            return self._store.add(pile, 1) - 1

    def absence(self) -> RankError | None:
        """After a meeting that failed: who has ended, hangs or has not come; `None` where nobody is missing."""
        first = self._read_soon()
        time.sleep(MISSED_BEATS * self._beat_s)
        second = self._read_soon()
        if first is None or second is None:
            sentence = "has ended or hangs, and with it the ranks' meeting point; see its own output for the cause"
            return RankError(f"rank 0 of {self.size} {sentence}", 0)
        beats = {entry.rank: entry.beat for entry in first}
        silent = [entry for entry in second if entry.rank != self.rank and entry.beat == beats[entry.rank]]
        late = self._late(second)
        if gone := [entry for entry in silent if entry in late] or silent:
            sentence = "has ended or hangs; see its own output for the cause"
            return RankError(f"{self._names(gone)} {sentence}", gone[0].rank)
        if late:
            sentence = "did not come within runtime.timeout_s; raise it if the wait is no fault"
            return RankError(f"{self._names(late)} {sentence}", late[0].rank)
        return None

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join(timeout=5.0)

    def _keep(self) -> None:
        patience_s = self._patience_s
        while not self._ended.wait(self._beat_s):
            try:
                self._renew()
            except RuntimeError:
                return  # the store is gone, and its rank with it: the next meeting fails by itself
            if (since := self._waiting_since) is None:
                patience_s = self._patience_s
                self._heard.clear()
                continue
            entries, waited_s = self._read() or [], time.monotonic() - since
            for entry in entries:
                if self._heard.get(entry.rank, (-1, 0.0))[0] != entry.beat:
                    self._heard[entry.rank] = entry.beat, time.monotonic()
            if waited_s >= patience_s:
                patience_s = 2 * waited_s
                self._tell(entries, waited_s)

    def _renew(self) -> None:
        self._beat += 1
        entry = Entry(self.rank, self._beat, self._meeting, self._doing)
        with self._lock:
            self._store.set(f"roll/{self.rank}", json.dumps(asdict(entry)))

    def _read(self) -> list[Entry] | None:
        """All lines, in rank order; `None` where the store is gone."""
        try:
            with self._lock:
                return [self._read_rank(rank) for rank in range(self.size)]
        except RuntimeError:
            return None

    def _read_soon(self) -> list[Entry] | None:
        """As `_read`, and `None` also where the store does not answer: its rank may be stopped."""
        answer = list[list[Entry] | None]()
        reader = threading.Thread(target=lambda: answer.append(self._read()), name="roll call reader", daemon=True)
        reader.start()
        reader.join(timeout=MISSED_BEATS * self._beat_s)
        return answer[0] if answer else None

    def _read_rank(self, rank: int) -> Entry:
        key = f"roll/{rank}"
        if not self._store.check([key]):
            return Entry(rank, 0, 0, "not there yet")
        return Entry(**json.loads(self._store.get(key)))

    def _late(self, entries: Sequence[Entry]) -> list[Entry]:
        return [entry for entry in entries if entry.meeting < self._meeting]

    def _tell(self, entries: Sequence[Entry], waited_s: Seconds) -> None:
        late = self._late(entries)
        present = {entry.rank for entry in entries} - {entry.rank for entry in late}
        if late and self.rank == min(present | {self.rank}):
            last = time.monotonic() - MISSED_BEATS * self._beat_s
            silent = [str(entry.rank) for entry in late if self._heard[entry.rank][1] < last]
            unheard = f"; no sign of life from rank {', '.join(silent)}" if silent else ""
            self._say(f"waiting for {waited_s:.0f} s ({self._doing}) for {self._names(late)}{unheard}")

    def _names(self, entries: Sequence[Entry]) -> str:
        return ", ".join(f"rank {entry.rank} of {self.size} ({entry.doing})" for entry in entries)
