"""The auxiliary CTC loss at its boundaries."""

import math
from itertools import product

import pytest
import torch

from chunkwise.losses.ctc import ctc_loss


def test_equals_the_sum_over_all_paths() -> None:
    logits = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0))
    scores = logits[0].log_softmax(dim=-1)
    paths = []
    for path in product(range(3), repeat=4):
        collapsed = [token for i, token in enumerate(path) if token and (i == 0 or path[i - 1] != token)]
        if collapsed == [1, 2]:
            paths.append(scores[torch.arange(4), torch.tensor(path)].sum())
    loss = ctc_loss(logits, torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2]))
    torch.testing.assert_close(loss[0], -torch.stack(paths).logsumexp(dim=0))


@pytest.mark.parametrize("filler", [0, 3, 4])
def test_padding_means_nothing(filler: int) -> None:
    logits = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(0))
    lengths, target_lengths = torch.tensor([6, 4, 5]), torch.tensor([3, 2, 0])
    targets = torch.tensor([[1, 2, 3], [4, 4, 1], [2, 2, 2]])
    losses = ctc_loss(logits, targets, lengths, target_lengths)
    logits[1, 4:] = float("nan")
    targets[1, 2:] = filler
    targets[2] = filler
    logits.requires_grad_()
    padded = ctc_loss(logits, targets, lengths, target_lengths)
    torch.testing.assert_close(padded, losses)
    assert torch.autograd.grad(padded.sum(), logits)[0].isfinite().all()


def test_empty_transcripts_and_no_frames() -> None:
    logits = torch.zeros(2, 6, 5, requires_grad=True)
    losses = ctc_loss(logits, torch.zeros(2, 0).long(), torch.tensor([6, 0]), torch.tensor([0, 0]))
    assert losses.tolist() == pytest.approx([6 * math.log(5), 0.0])
    one_without_frames = ctc_loss(logits, torch.ones(2, 3).long(), torch.tensor([6, 0]), torch.tensor([1, 3]))
    assert one_without_frames[1] == 0
    one_without_frames.sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_half_precision_logits_get_a_full_precision_loss() -> None:
    logits = 20 * torch.randn(2, 20, 50, generator=torch.Generator().manual_seed(2))
    arguments = (torch.arange(1, 9).repeat(2, 1), torch.tensor([20, 20]), torch.tensor([8, 6]))
    with torch.autocast("cpu", torch.bfloat16):
        losses = ctc_loss(logits.bfloat16(), *arguments)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, ctc_loss(logits, *arguments), rtol=1e-2, atol=0)
