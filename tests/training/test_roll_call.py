"""A roll call names who is late, who is silent and who is gone, and nobody who is there."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from torch._C._distributed_c10d import HashStore

from chunkwise.training.roll_call import RollCall

BEAT_S = 0.02


@pytest.fixture
def rolls() -> Iterator[tuple[list[RollCall], list[str]]]:
    store, said = HashStore(), list[str]()
    with ExitStack() as stack:
        members = [RollCall(store, rank, 3, BEAT_S, patience_s=0.1, say=said.append) for rank in range(3)]
        for roll in members:
            stack.callback(roll.close)
        yield members, said


def _until(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(BEAT_S)


def test_the_lowest_rank_that_waits_names_the_late_one(rolls: tuple[list[RollCall], list[str]]) -> None:
    (first, late, last), said = rolls
    late.sign("decoding batch 3 of 7")
    for roll in (first, last):
        roll.sign("adding up the errors")
        roll.begin_meeting()
    _until(lambda: len(said) >= 2)  # again after the wait has doubled
    late.begin_meeting()
    for roll in (first, late, last):
        roll.end_meeting()
    assert {line.partition(" s ")[2] for line in said} == {
        "(adding up the errors) for rank 1 of 3 (decoding batch 3 of 7)"
    }
    told = len(said)
    time.sleep(0.5)
    assert len(said) == told


def test_nobody_is_named_where_all_have_come(rolls: tuple[list[RollCall], list[str]]) -> None:
    members, said = rolls
    for roll in members:
        roll.begin_meeting()
    time.sleep(0.5)
    assert said == []
    assert members[0].absence() is None


def test_a_silent_rank_is_told_from_a_late_one(rolls: tuple[list[RollCall], list[str]]) -> None:
    (first, gone, late), said = rolls
    gone.sign("reading u7")
    late.sign("decoding")
    time.sleep(5 * BEAT_S)
    gone.close()  # no more beats, as of a process that ended
    first.begin_meeting()
    _until(lambda: bool(said) and "no sign of life from rank 1" in said[-1])
    absence = first.absence()
    assert absence is not None
    assert absence.rank == 1
    assert str(absence) == "rank 1 of 3 (reading u7) has ended or hangs; see its own output for the cause"


def test_a_rank_that_lives_but_does_not_come_is_named(rolls: tuple[list[RollCall], list[str]]) -> None:
    (first, late, last), _ = rolls
    late.sign("decoding batch 3 of 7")
    first.begin_meeting()
    last.begin_meeting()
    absence = first.absence()
    assert absence is not None
    assert absence.rank == 1
    assert str(absence).startswith("rank 1 of 3 (decoding batch 3 of 7) did not come within runtime.timeout_s")


def test_a_rank_that_never_started_is_named() -> None:
    roll = RollCall(HashStore(), 0, 2, BEAT_S)
    roll.begin_meeting()
    absence = roll.absence()
    roll.close()
    assert absence is not None
    assert str(absence).startswith("rank 1 of 2 (not there yet)")


def test_the_end_of_the_store_is_the_end_of_rank_0() -> None:
    class Gone(HashStore):
        broken = False

        def check(self, keys: list[str]) -> bool:
            if Gone.broken:
                raise RuntimeError("Broken pipe")
            return super().check(keys)

    roll = RollCall(Gone(), 1, 2, BEAT_S)
    roll.begin_meeting()
    Gone.broken = True
    absence = roll.absence()
    roll.close()
    assert absence is not None
    assert absence.rank == 0
