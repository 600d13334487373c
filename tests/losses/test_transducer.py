"""The full transducer loss against explicit path sums, at every boundary."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from chunkwise.losses.transducer import full_transducer_loss

Batch = tuple[Tensor, Tensor, Tensor, Tensor]


def batch(seed: int = 0) -> Batch:
    """Four utterances: ordinary, more symbols than frames, one frame, no symbol."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, 4, 4, 5, generator=generator)
    targets = torch.randint(1, 5, (4, 3), generator=generator)
    return logits, targets, torch.tensor([4, 2, 1, 3]), torch.tensor([3, 3, 2, 0])


@pytest.mark.parametrize("num_frames", [1, 2, 3, 4])
@pytest.mark.parametrize("num_symbols", [0, 1, 2, 3, 4])
def test_equals_the_sum_over_all_paths(
    num_frames: int, num_symbols: int, brute_force_loss: Callable[[Tensor, list[int]], Tensor]
) -> None:
    logits = torch.randn(1, num_frames, num_symbols + 1, 6, generator=torch.Generator().manual_seed(1))
    targets = torch.arange(1, num_symbols + 1)[None]
    loss = full_transducer_loss(logits, targets, torch.tensor([num_frames]), torch.tensor([num_symbols]))
    torch.testing.assert_close(loss[0], brute_force_loss(logits[0], targets[0].tolist()))


@pytest.mark.parametrize(("num_frames", "num_symbols"), [(6, 0), (6, 3), (2, 5), (40, 17), (1, 1)])
def test_uniform_logits_count_paths(
    num_frames: int, num_symbols: int, uniform_loss: Callable[[int, int, int], float]
) -> None:
    logits = torch.zeros(1, num_frames, num_symbols + 1, 5)
    targets = torch.ones(1, num_symbols, dtype=torch.int64)
    loss = full_transducer_loss(logits, targets, torch.tensor([num_frames]), torch.tensor([num_symbols]))
    assert loss.item() == pytest.approx(uniform_loss(num_frames, num_symbols, 5), rel=1e-5)


def test_batch_mates_and_longer_padding_change_nothing() -> None:
    logits, targets, lengths, target_lengths = batch()
    losses = full_transducer_loss(logits, targets, lengths, target_lengths)
    wider = torch.full((4, 7, 6, 5), float("nan"))
    wider[:, :4, :4] = logits
    wide_targets = torch.cat((targets, torch.full((4, 2), 9)), dim=1)
    torch.testing.assert_close(full_transducer_loss(wider, wide_targets, lengths, target_lengths), losses)
    for row in range(4):
        one = slice(row, row + 1)
        alone = full_transducer_loss(logits[one], targets[one], lengths[one], target_lengths[one])
        torch.testing.assert_close(alone, losses[one])


@pytest.mark.parametrize("filler", [0, 3, 4])
def test_padding_ids_mean_nothing(filler: int) -> None:
    """Regression: iamjanvijay/rnnt#3, HawkAaron/RNN-Transducer#10."""

    def loss_and_gradient(targets: Tensor) -> tuple[Tensor, Tensor]:
        leaf = logits.clone().requires_grad_()
        losses = full_transducer_loss(leaf, targets, lengths, target_lengths)
        return losses, torch.autograd.grad(losses.sum(), leaf)[0]

    logits, targets, lengths, target_lengths = batch()
    filled = targets.masked_fill(torch.arange(3) >= target_lengths[:, None], filler)
    for found, wanted in zip(loss_and_gradient(filled), loss_and_gradient(targets), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("target_lengths", [[2, 0], [0, 0]])
def test_empty_transcripts_have_a_loss(target_lengths: list[int]) -> None:
    """Regression: k2-fsa/k2#1149."""
    logits = torch.zeros(2, 6, max(target_lengths) + 1, 5, requires_grad=True)
    targets = torch.ones(2, max(target_lengths), dtype=torch.int64)
    losses = full_transducer_loss(logits, targets, torch.tensor([6, 6]), torch.tensor(target_lengths))
    losses.sum().backward()
    assert losses[1].item() == pytest.approx(9.6566, abs=1e-4)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_no_frames_teach_nothing() -> None:
    """Regression: k2-fsa/icefall#603."""
    logits = torch.randn(2, 6, 4, 5, requires_grad=True)
    losses = full_transducer_loss(logits, torch.ones(2, 3).long(), torch.tensor([6, 0]), torch.tensor([3, 3]))
    losses.sum().backward()
    assert losses[0] > 0
    assert losses[1] == 0
    assert logits.grad is not None
    assert logits.grad[1].eq(0).all()
    no_frame = full_transducer_loss(logits[:, :0], torch.ones(2, 3).long(), torch.tensor([0, 0]), torch.tensor([3, 3]))
    assert no_frame.tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_get_a_full_precision_loss(dtype: torch.dtype) -> None:
    """Regression: k2-fsa/icefall#283, speechbrain/speechbrain#1803."""
    logits = 20 * torch.randn(2, 20, 9, 50, generator=torch.Generator().manual_seed(2))
    targets = torch.randint(1, 50, (2, 8), generator=torch.Generator().manual_seed(3))
    lengths, target_lengths = torch.tensor([20, 15]), torch.tensor([8, 6])
    expected = full_transducer_loss(logits, targets, lengths, target_lengths)
    with torch.autocast("cpu", torch.bfloat16):
        losses = full_transducer_loss(logits.to(dtype), targets, lengths, target_lengths)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, expected, rtol=1e-2, atol=0)
