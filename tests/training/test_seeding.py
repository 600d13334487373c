"""Randomness is a function of the seed and of where training stands."""

import torch

from chunkwise.training.seeding import seed_step

CPU = torch.device("cpu")


def test_every_coordinate_matters() -> None:
    draws = set()
    for place in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]:
        generator = seed_step(*place, CPU)
        draws |= {torch.rand(1).item(), torch.rand(1, generator=generator).item()}
    assert len(draws) == 8


def test_what_was_drawn_before_leaves_no_trace() -> None:
    seed_step(3, 5, 1, CPU)
    expected = torch.rand(4)
    torch.rand(1000)
    seed_step(3, 5, 1, CPU)
    assert torch.equal(torch.rand(4), expected)
