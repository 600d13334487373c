"""The native pruned loss against the real k2: values, occupations, ranges and gradients, on the same tensors."""

import pytest
import torch
from random_cases import assert_close, random_case
from torch import Tensor

k2 = pytest.importorskip("k2", reason="needs k2; `make test-k2` runs this in a virtual environment that has it")

from chunkwise.losses import k2_pruned, pruned  # noqa: E402 (after the skip)
from chunkwise.losses.backend import Choice, Target, choose_backend, pruned_losses  # noqa: E402
from chunkwise.losses.config import Backend  # noqa: E402
from chunkwise.losses.pruned import Pruning, Smoothing  # noqa: E402

SEEDS = range(60)


def gradients(losses: Tensor, leaves: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Of the losses, each with a weight of its own."""
    weights = torch.linspace(0.5, 1.5, len(losses), dtype=losses.dtype)
    return torch.autograd.grad((weights * losses).sum(), leaves)


def test_auto_takes_k2() -> None:
    assert choose_backend(Backend.auto, torch.device("cpu")) == Choice(Backend.k2, "loss.backend=auto took k2")


@pytest.mark.parametrize("seed", SEEDS)
def test_simple_losses_occupations_and_gradients(seed: int) -> None:
    case = random_case(seed)
    tokens, lengths, token_lengths = case.target
    smoothing, delay_penalty = case.pruning.smoothing, case.pruning.delay_penalty
    arguments = (case.am, case.lm, tokens, lengths, token_lengths, smoothing, delay_penalty)
    expected, their_paths = k2_pruned.simple_transducer_loss(*arguments)
    losses, paths = pruned.simple_transducer_loss(*arguments)
    assert_close(losses, expected)
    assert_close(paths.emit_occupation, their_paths.emit_occupation)
    assert_close(paths.blank_occupation, their_paths.blank_occupation)
    for found, wanted in zip(gradients(losses, case.leaves[:2]), gradients(expected, case.leaves[:2]), strict=True):
        assert_close(found, wanted)


@pytest.mark.parametrize("seed", SEEDS)
def test_ranges_are_equal_on_the_same_occupations(seed: int) -> None:
    case = random_case(seed)
    paths = k2_pruned.simple_transducer_loss(case.am, case.lm, *case.target)[1]
    arguments = (paths, case.target.lengths, case.target.token_lengths, case.pruning.prune_range)
    assert torch.equal(pruned.prune_ranges(*arguments), k2_pruned.prune_ranges(*arguments))


@pytest.mark.parametrize("seed", SEEDS)
def test_pruned_losses_and_gradients(seed: int) -> None:
    case = random_case(seed)
    tokens, lengths, token_lengths = case.target
    paths = k2_pruned.simple_transducer_loss(case.am, case.lm, *case.target)[1]
    ranges = k2_pruned.prune_ranges(paths, lengths, token_lengths, case.pruning.prune_range)
    logits = case.join(ranges).detach().requires_grad_()
    arguments = (logits, tokens, ranges, lengths, token_lengths, case.pruning.delay_penalty)
    expected, losses = k2_pruned.pruned_transducer_loss(*arguments), pruned.pruned_transducer_loss(*arguments)
    assert_close(losses, expected)
    assert_close(gradients(losses, (logits,))[0], gradients(expected, (logits,))[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_both_backends_through_the_one_function(seed: int) -> None:
    """From scores to gradients of a whole joiner. A confident model has ranges that are equally good but for rounding,
    of which each backend takes its own; so these models are not, and are computed in float64.
    """
    case = random_case(seed, torch.float64, scales=(0.3, 1.0))
    native, by_k2 = (
        pruned_losses(backend, case.am, case.lm, case.join, case.target, case.pruning)
        for backend in (Backend.native, Backend.k2)
    )
    for found, wanted in zip(native, by_k2, strict=True):
        assert_close(found, wanted)
    both = (gradients(losses.simple + losses.pruned, case.leaves) for losses in (native, by_k2))
    for found, wanted in zip(*both, strict=True):
        assert_close(found, wanted)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_reductions_and_boundaries_are_those_of_k2(reduction: str) -> None:
    """k2's own functions, called as icefall calls them."""
    case = random_case(4)
    tokens, lengths, token_lengths = case.target
    boundary = torch.zeros(len(lengths), 4, dtype=torch.int64)
    boundary[:, 2], boundary[:, 3] = token_lengths, lengths
    simple, (px_grad, py_grad) = k2.rnnt_loss_smoothed(
        lm=case.lm, am=case.am, symbols=tokens, termination_symbol=0, lm_only_scale=0.25, am_only_scale=0.1,
        boundary=boundary, reduction=reduction, delay_penalty=0.01, return_grad=True,
    )  # fmt: skip
    ranges = k2.get_rnnt_prune_ranges(px_grad=px_grad, py_grad=py_grad, boundary=boundary, s_range=5)
    encoded, predicted = k2.do_rnnt_pruning(am=case.encoded, lm=case.predicted, ranges=ranges)
    expected = k2.rnnt_loss_pruned(
        logits=(encoded + predicted).tanh() @ case.output, symbols=tokens, ranges=ranges, termination_symbol=0,
        boundary=boundary, reduction=reduction, delay_penalty=0.01,
    )  # fmt: skip
    pruning = Pruning(5, Smoothing(0.25, 0.1), 0.01)
    native = pruned_losses(Backend.native, case.am, case.lm, case.join, case.target, pruning)
    for losses, wanted in zip(native, (simple, expected), strict=True):
        assert_close(losses.sum() if reduction == "sum" else losses.mean(), wanted)


@pytest.mark.parametrize("symbols", [[2, 0], [0, 0], [4, 4]])
@pytest.mark.parametrize("frames", [[6, 3], [3, 3], [1, 1], [6, 0]])
def test_the_k2_backend_takes_every_batch(symbols: list[int], frames: list[int]) -> None:
    """Also what k2 itself refuses or gives an infinite loss: no symbol, more symbols than frames, no frame."""
    generator = torch.Generator().manual_seed(0)
    am = torch.randn(2, max(frames), 5, generator=generator).requires_grad_()
    lm = torch.randn(2, max(symbols) + 1, 5, generator=generator).requires_grad_()
    target = Target(torch.ones(2, max(symbols)).long(), torch.tensor(frames), torch.tensor(symbols))

    def join(ranges: Tensor) -> Tensor:
        return am[:, :, None] + pruned.prune_predictions(lm, ranges)

    both = [
        pruned_losses(backend, am, lm, join, target, Pruning(2, Smoothing(0.25)))
        for backend in (Backend.native, Backend.k2)
    ]
    for found, wanted in zip(*both, strict=True):
        assert_close(found, wanted)
    for found, wanted in zip(*(gradients(losses.simple + losses.pruned, (am, lm)) for losses in both), strict=True):
        assert_close(found, wanted)
