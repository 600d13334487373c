"""One step: what it draws, and from when on it augments."""

from dataclasses import replace

import torch
from tiny import ALONE, stream, tiny_parts
from torch import Tensor

from chunkwise.data.samplers import Position
from chunkwise.training.distributed import open_world
from chunkwise.training.state import TrainState
from chunkwise.training.step import Meter, next_window, take_step


def test_augmentation_begins_with_its_epoch() -> None:
    calls = []

    def augment(features: Tensor, lengths: Tensor, generator: torch.Generator) -> Tensor:
        calls.append(state.position.epoch)
        return features

    state = TrainState()
    with open_world(ALONE) as world:
        parts = replace(tiny_parts(world), augment=augment, augment_from_epoch=1)
        parts.train_mode(True)
        batches = stream(Position(), world)
        for _ in range(7):
            window = next_window(batches, 1, parts, state, Meter(0.0))
            take_step(parts.objective, parts, window, 1e-3, 5.0, state)
    assert state.position.epoch == 1
    assert calls
    assert set(calls) == {1}
