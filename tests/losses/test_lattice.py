"""The sum over paths, its gradient and the occupation of the arcs."""

import math

import torch
from torch import Tensor

from chunkwise.losses.lattice import sum_paths


def arcs(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random arcs of four odd utterances, in float64."""
    generator = torch.Generator().manual_seed(seed)
    emit, blank = torch.randn(2, 4, 4, 5, generator=generator, dtype=torch.float64) - 1
    return emit, blank, torch.tensor([5, 2, 1, 4]), torch.tensor([3, 3, 2, 0])


def test_gradient_is_that_of_finite_differences() -> None:
    emit, blank, lengths, target_lengths = arcs()
    emit.requires_grad_()
    blank.requires_grad_()
    assert torch.autograd.gradcheck(lambda e, b: sum_paths(e, b, lengths, target_lengths).log_likelihood, (emit, blank))


def test_occupations_count_arcs() -> None:
    """Every path emits each symbol once and takes blank once per frame."""
    emit, blank, lengths, target_lengths = arcs()
    paths = sum_paths(emit, blank, lengths, target_lengths)
    torch.testing.assert_close(paths.emit_occupation.sum((1, 2)), target_lengths.double())
    torch.testing.assert_close(paths.blank_occupation.sum((1, 2)), lengths.double())


def test_only_lengths_decide_what_is_read() -> None:
    emit, blank, lengths, target_lengths = arcs()
    expected = sum_paths(emit, blank, lengths, target_lengths)
    for filler in (float("nan"), float("inf"), 1e4):
        for row, (length, symbols) in enumerate(zip(lengths.tolist(), target_lengths.tolist(), strict=True)):
            emit[row, symbols:] = filler
            emit[row, :, length:] = filler
            blank[row, symbols + 1 :] = filler
            blank[row, :, length:] = filler
        for found, wanted in zip(sum_paths(emit, blank, lengths, target_lengths), expected, strict=True):
            torch.testing.assert_close(found, wanted)


def test_each_utterance_equals_itself_alone() -> None:
    emit, blank, lengths, target_lengths = arcs()
    together = sum_paths(emit, blank, lengths, target_lengths)
    for row, (length, symbols) in enumerate(zip(lengths.tolist(), target_lengths.tolist(), strict=True)):
        part = (slice(row, row + 1), slice(0, symbols + 1), slice(0, length))
        alone = sum_paths(emit[part], blank[part], lengths[row : row + 1], target_lengths[row : row + 1])
        torch.testing.assert_close(alone.log_likelihood[0], together.log_likelihood[row])
        torch.testing.assert_close(alone.blank_occupation, together.blank_occupation[part])


def test_a_blocked_lattice_is_impossible_but_not_nan() -> None:
    emit, blank, lengths, target_lengths = arcs()
    blank[0] = -math.inf
    paths = sum_paths(emit, blank, lengths, target_lengths)
    assert paths.log_likelihood[0] == -math.inf
    assert paths.log_likelihood[1:].isfinite().all()
    assert paths.emit_occupation[0].eq(0).all()


def test_long_utterances_lose_no_precision() -> None:
    """At a loss of 3000 nats a step of float32 is 2e-4, too coarse for the exponential of a difference."""
    emit, blank = 3 * torch.randn(2, 2, 61, 375, generator=torch.Generator().manual_seed(0)) - 9
    lengths, target_lengths = torch.tensor([375, 300]), torch.tensor([60, 20])
    exact = sum_paths(emit.double(), blank.double(), lengths, target_lengths)
    assert exact.log_likelihood[0] < -2000
    for found, wanted in zip(sum_paths(emit, blank, lengths, target_lengths), exact, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=1e-6)
