"""What a resumed run must know, in plain types."""

import math

import pytest

from chunkwise.data.samplers import Position
from chunkwise.training.state import TrainState, Validation


def test_the_state_survives_as_plain_values() -> None:
    state = TrainState(step=3, position=Position(1, 2), unusable={"b", "a"}, best=Validation(wer=0.5), best_step=2)
    values = state.to_dict()
    assert values["position"] == {"epoch": 1, "batch": 2}
    assert values["unusable"] == ["a", "b"]
    assert TrainState.from_dict(values) == state
    assert TrainState.from_dict(TrainState().to_dict()) == TrainState()


@pytest.mark.parametrize(
    ("wer", "loss", "improves"),
    [
        (0.4, 9.0, True),
        (0.5, 0.9, True),
        (0.5, 1.0, False),
        (0.6, 0.1, False),
        (None, 0.1, False),
        (math.nan, 0.1, False),
    ],
)
def test_the_best_is_by_error_rate_and_ties_by_loss(wer: float | None, loss: float, improves: bool) -> None:
    state = TrainState(step=9, best=Validation(wer=0.5, loss=1.0), best_step=5)
    assert state.improved(Validation(wer=wer, loss=loss)) is improves
    assert state.best_step == (9 if improves else 5)


def test_the_first_validation_is_the_best_so_far() -> None:
    assert TrainState().improved(Validation(wer=None))


def test_windows_count_as_updates_or_as_dropped() -> None:
    state = TrainState()
    for skipped in (False, True, True, False, True):
        state.count(skipped)
    assert (state.step, state.skipped, state.skipped_in_a_row, state.window) == (2, 3, 1, 5)
