"""The simple loss, the ranges and the pruned loss."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from chunkwise.losses.lattice import Paths
from chunkwise.losses.pruned import (
    Smoothing,
    prune_predictions,
    prune_ranges,
    pruned_transducer_loss,
    simple_transducer_loss,
)
from chunkwise.losses.transducer import full_transducer_loss

LENGTHS, TARGET_LENGTHS = torch.tensor([9, 4, 1, 7, 5]), torch.tensor([5, 5, 3, 0, 5])
SMOOTHINGS = [Smoothing(), Smoothing(0.25, 0.0), Smoothing(0.2, 0.1)]


def random_batch(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """am, lm and targets of five odd utterances."""
    generator = torch.Generator().manual_seed(seed)
    am = torch.randn(5, 9, 7, generator=generator)
    lm = torch.randn(5, 6, 7, generator=generator)
    return 3 * am, 3 * lm, torch.randint(1, 7, (5, 5), generator=generator)


def small_batch() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """am, lm, targets and their lengths, in float64 and small enough to differentiate numerically."""
    generator = torch.Generator().manual_seed(0)
    am, lm = torch.randn(2, 3, 4, 4, generator=generator, dtype=torch.float64)
    targets = torch.randint(1, 4, (3, 3), generator=generator)
    return am.clone(), lm.clone(), targets, torch.tensor([4, 2, 3]), torch.tensor([3, 3, 0])


def everything(batch: int, num_frames: int, num_positions: int) -> Tensor:
    """Ranges that keep all positions."""
    return torch.arange(num_positions).expand(batch, num_frames, num_positions)


def simple_paths(am: Tensor, lm: Tensor, targets: Tensor) -> Paths:
    """The occupations of the simple lattice."""
    return simple_transducer_loss(am, lm, targets, LENGTHS, TARGET_LENGTHS)[1]


def test_simple_loss_is_the_full_loss_of_added_logits() -> None:
    am, lm, targets = random_batch()
    simple = simple_transducer_loss(am, lm, targets, LENGTHS, TARGET_LENGTHS)[0]
    full = full_transducer_loss(am[:, :, None] + lm[:, None], targets, LENGTHS, TARGET_LENGTHS)
    torch.testing.assert_close(simple, full, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_smoothing_interpolates_normalised_models(smoothing: Smoothing) -> None:
    """Constants added to am or lm change nothing, because every part is normalised on its own."""
    am, lm, targets = random_batch()
    losses = [
        simple_transducer_loss(am + a, lm + b, targets, LENGTHS, TARGET_LENGTHS, smoothing)[0]
        for a, b in ((0.0, 0.0), (30.0, -20.0))
    ]
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_simple_gradient_is_that_of_finite_differences(smoothing: Smoothing) -> None:
    am, lm, targets, lengths, target_lengths = small_batch()

    def loss(am: Tensor, lm: Tensor) -> Tensor:
        return simple_transducer_loss(am, lm, targets, lengths, target_lengths, smoothing, delay_penalty=0.1)[0]

    assert torch.autograd.gradcheck(loss, (am.requires_grad_(), lm.requires_grad_()))


def test_pruned_gradient_is_that_of_finite_differences() -> None:
    am, lm, targets, lengths, target_lengths = small_batch()
    paths = simple_transducer_loss(am, lm, targets, lengths, target_lengths)[1]
    ranges = prune_ranges(paths, lengths, target_lengths, 2)
    assert ranges.shape == (3, 4, 3)
    logits = torch.randn(3, 4, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def loss(logits: Tensor) -> Tensor:
        return pruned_transducer_loss(logits, targets, ranges, lengths, target_lengths, delay_penalty=0.1)

    assert torch.autograd.gradcheck(loss, (logits.requires_grad_(),))


@pytest.mark.parametrize("num_frames", [1, 2, 3, 4])
@pytest.mark.parametrize("num_symbols", [0, 1, 2, 3, 4])
def test_without_pruning_equals_the_sum_over_all_paths(
    num_frames: int, num_symbols: int, brute_force_loss: Callable[[Tensor, list[int]], Tensor]
) -> None:
    logits = torch.randn(1, num_frames, num_symbols + 1, 6, dtype=torch.float64)
    targets = torch.arange(1, num_symbols + 1)[None]
    ranges = everything(1, num_frames, num_symbols + 1)
    loss = pruned_transducer_loss(logits, targets, ranges, torch.tensor([num_frames]), torch.tensor([num_symbols]))
    torch.testing.assert_close(loss[0], brute_force_loss(logits[0], targets[0].tolist()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_frames", [1, 3, 4])
@pytest.mark.parametrize("num_symbols", [0, 1, 3])
def test_a_delay_penalty_prices_the_frame_of_every_symbol(
    num_frames: int, num_symbols: int, brute_force_loss: Callable[..., Tensor]
) -> None:
    am, lm = torch.randn(1, num_frames, 6).double(), torch.randn(1, num_symbols + 1, 6).double()
    targets, lengths = torch.arange(1, num_symbols + 1)[None], (torch.tensor([num_frames]), torch.tensor([num_symbols]))
    logits, ranges = am[:, :, None] + lm[:, None], everything(1, num_frames, num_symbols + 1)
    simple = simple_transducer_loss(am, lm, targets, *lengths, delay_penalty=0.3)[0]
    pruned = pruned_transducer_loss(logits, targets, ranges, *lengths, delay_penalty=0.3)
    expected = brute_force_loss(logits[0], targets[0].tolist(), delay_penalty=0.3)
    torch.testing.assert_close(torch.cat((simple, pruned)), expected.expand(2), rtol=1e-12, atol=1e-12)


def test_a_delay_penalty_moves_symbols_forward() -> None:
    am, lm, targets = random_batch()
    frames = torch.arange(9.0)
    mean_frames = []
    for penalty in (0.0, 0.1, 1.0):
        loss, paths = simple_transducer_loss(am, lm, targets, LENGTHS, TARGET_LENGTHS, delay_penalty=penalty)
        assert loss.isfinite().all()
        mean_frames.append((paths.emit_occupation * frames).sum((1, 2)))
    assert (mean_frames[0] >= mean_frames[1]).all()
    assert (mean_frames[1] >= mean_frames[2]).all()
    assert mean_frames[0].sum() > mean_frames[2].sum() + 1


def test_without_pruning_equals_the_full_loss_and_its_gradient() -> None:
    _, _, targets = random_batch()
    logits = torch.randn(5, 9, 6, 7, generator=torch.Generator().manual_seed(1), requires_grad=True)
    full = full_transducer_loss(logits, targets, LENGTHS, TARGET_LENGTHS)
    native = pruned_transducer_loss(logits, targets, everything(5, 9, 6), LENGTHS, TARGET_LENGTHS)
    torch.testing.assert_close(native, full)
    gradients = [torch.autograd.grad(losses.sum(), logits)[0] for losses in (native, full)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("num_frames", "num_symbols"), [(6, 0), (6, 3), (2, 5), (40, 17)])
def test_uniform_logits_count_paths(
    num_frames: int, num_symbols: int, uniform_loss: Callable[[int, int, int], float]
) -> None:
    lengths, target_lengths = torch.tensor([num_frames]), torch.tensor([num_symbols])
    targets = torch.ones(1, num_symbols, dtype=torch.int64)
    am, lm = torch.zeros(1, num_frames, 5), torch.zeros(1, num_symbols + 1, 5)
    simple, _ = simple_transducer_loss(am, lm, targets, lengths, target_lengths)
    assert simple.item() == pytest.approx(uniform_loss(num_frames, num_symbols, 5), rel=1e-5)


@pytest.mark.parametrize("prune_range", [2, 3, 5, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_ranges_are_connected_from_start_to_end(prune_range: int, seed: int) -> None:
    am, lm, targets = random_batch(seed)
    ranges = prune_ranges(simple_paths(am, lm, targets), LENGTHS, TARGET_LENGTHS, prune_range)
    size = ranges.shape[2]
    assert size == min(max(prune_range, 4), 6)  # the third utterance has 3 symbols in its only frame
    assert torch.equal(ranges, ranges[:, :, :1] + torch.arange(size))
    assert ranges.min() >= 0
    assert ranges.max() <= 5
    assert ranges[:, 0, 0].eq(0).all()
    steps = ranges[:, :, 0].diff(dim=1)
    assert steps.min() >= 0
    assert steps.max() < size
    last = ranges[torch.arange(5), LENGTHS - 1]
    assert (last == TARGET_LENGTHS[:, None]).any(dim=1).all()


def test_ranges_follow_a_confident_model() -> None:
    """Six symbols at frames 1, 4, 7, ...: the range holds the position that the model is at."""
    targets = torch.arange(1, 7)[None]
    am = torch.zeros(1, 20, 7)
    am[0, :, 0] = 20.0
    for symbol in range(6):
        am[0, 1 + 3 * symbol, symbol + 1] = 40.0
        am[0, 1 + 3 * symbol, 0] = 30.0
    lm = torch.zeros(1, 7, 7)
    lm[0, torch.arange(6), targets[0]] = 5.0
    lengths, target_lengths = torch.tensor([20]), torch.tensor([6])
    paths = simple_transducer_loss(am, lm, targets, lengths, target_lengths)[1]
    ranges = prune_ranges(paths, lengths, target_lengths, 2)
    position = ((torch.arange(20) + 1) // 3).clamp(max=6)  # before the emission in frame 1 + 3 i
    assert (ranges[0] == position[:, None]).any(dim=1).all()


@pytest.mark.parametrize(
    ("lengths", "prune_range"), [([6, 2], 2), ([1, 1], 3), ([6, 0], 2), ([1, 0], 2), ([1, 1], 1000)]
)
def test_more_symbols_than_frames(lengths: list[int], prune_range: int) -> None:
    """Regression: k2-fsa/fast_rnnt#25, k2-fsa/icefall#603, #1392."""
    generator = torch.Generator().manual_seed(0)
    am = torch.randn(2, 6, 5, generator=generator)[:, : max(lengths)].requires_grad_()
    lm = torch.randn(2, 4, 5, generator=generator).requires_grad_()
    targets, frames, symbols = torch.tensor([[1, 2, 3], [3, 2, 1]]), torch.tensor(lengths), torch.tensor([3, 3])
    simple, paths = simple_transducer_loss(am, lm, targets, frames, symbols)
    ranges = prune_ranges(paths, frames, symbols, prune_range)
    logits = am[:, :, None] + prune_predictions(lm, ranges)
    pruned = pruned_transducer_loss(logits, targets, ranges, frames, symbols)
    (simple + pruned).sum().backward()
    for value in (simple, pruned, am.grad, lm.grad):
        assert value is not None
        assert value.isfinite().all()
    assert ((simple > 0) == (frames > 0)).all()
    assert (pruned > simple - 1e-4).all()  # some paths of the same lattice


@pytest.mark.parametrize("target_lengths", [[2, 0], [0, 0], [1, 1]])
def test_empty_transcripts_have_a_loss(target_lengths: list[int]) -> None:
    """Regression: k2-fsa/k2#1149, k2-fsa/icefall#845."""
    num_symbols = max(target_lengths)
    am = torch.zeros(2, 6, 5, requires_grad=True)
    lm = torch.zeros(2, num_symbols + 1, 5, requires_grad=True)
    targets, frames, symbols = torch.ones(2, num_symbols).long(), torch.tensor([6, 6]), torch.tensor(target_lengths)
    simple, paths = simple_transducer_loss(am, lm, targets, frames, symbols, Smoothing(0.25, 0.1))
    ranges = prune_ranges(paths, frames, symbols, 2)
    pruned = pruned_transducer_loss(am[:, :, None] + prune_predictions(lm, ranges), targets, ranges, frames, symbols)
    if target_lengths[1] == 0:
        assert simple[1].item() == pytest.approx(9.6566, abs=1e-4)
        assert pruned[1].item() == pytest.approx(9.6566, abs=1e-4)
    (simple + pruned).sum().backward()
    assert am.grad is not None
    assert am.grad.isfinite().all()


@pytest.mark.parametrize("filler", [0, 3, 6])
def test_padding_means_nothing(filler: int) -> None:
    """Regression: iamjanvijay/rnnt#3, HawkAaron/RNN-Transducer#10."""

    def losses_and_gradients(am: Tensor, targets: Tensor) -> list[Tensor]:
        am_leaf, lm_leaf = am.clone().requires_grad_(), lm.clone().requires_grad_()
        smoothing = Smoothing(0.25, 0.0)
        simple, paths = simple_transducer_loss(am_leaf, lm_leaf, targets, LENGTHS, TARGET_LENGTHS, smoothing)
        ranges = prune_ranges(paths, LENGTHS, TARGET_LENGTHS, 4)
        logits = am_leaf[:, :, None] + prune_predictions(lm_leaf, ranges)
        pruned = pruned_transducer_loss(logits, targets, ranges, LENGTHS, TARGET_LENGTHS)
        return [simple, pruned, *torch.autograd.grad(simple.sum() + pruned.sum(), (am_leaf, lm_leaf))]

    am, lm, targets = random_batch()
    expected = losses_and_gradients(am, targets)
    filled = targets.masked_fill(torch.arange(5) >= TARGET_LENGTHS[:, None], filler)
    loud = am.masked_fill((torch.arange(9) >= LENGTHS[:, None])[:, :, None], float("nan"))
    for found, wanted in zip(losses_and_gradients(loud, filled), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


def test_half_precision_scores_get_a_full_precision_loss() -> None:
    """Regression: k2-fsa/icefall#283, espnet/espnet#3237."""
    am, lm, targets = random_batch()
    expected, paths = simple_transducer_loss(am, lm, targets, LENGTHS, TARGET_LENGTHS)
    ranges = prune_ranges(paths, LENGTHS, TARGET_LENGTHS, 5)
    logits = am[:, :, None] + prune_predictions(lm, ranges)
    with torch.autocast("cpu", torch.bfloat16):
        simple, _ = simple_transducer_loss(am.bfloat16(), lm.bfloat16(), targets, LENGTHS, TARGET_LENGTHS)
        pruned = pruned_transducer_loss(logits.bfloat16(), targets, ranges, LENGTHS, TARGET_LENGTHS)
    assert simple.dtype == pruned.dtype == torch.float32
    torch.testing.assert_close(simple, expected, rtol=1e-2, atol=0)
    exact = pruned_transducer_loss(logits, targets, ranges, LENGTHS, TARGET_LENGTHS)
    torch.testing.assert_close(pruned, exact, rtol=1e-2, atol=0)
