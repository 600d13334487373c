"""The choice of a backend, and the pruned loss behind one function."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from chunkwise.losses.backend import Target, choose_backend, pruned_losses, refuse_missing_k2
from chunkwise.losses.config import Backend, LossConfig, LossKind
from chunkwise.losses.pruned import Pruning, Smoothing, prune_predictions
from chunkwise.losses.transducer import full_transducer_loss

CPU = torch.device("cpu")


@pytest.fixture
def no_k2(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where k2 is not installed."""
    monkeypatch.setitem(sys.modules, "k2", None)


@pytest.fixture
def wrong_k2(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of that name which imports but computes something else."""
    monkeypatch.setitem(sys.modules, "k2", SimpleNamespace(rnnt_loss_smoothed=lambda *_, **__: torch.tensor(3.0)))


def test_native_is_taken_without_a_word() -> None:
    assert choose_backend(Backend.native, CPU) == (Backend.native, None)


@pytest.mark.usefixtures("no_k2")
def test_auto_says_what_it_took_and_why() -> None:
    choice = choose_backend(Backend.auto, CPU)
    assert choice.backend is Backend.native
    assert choice.notice is not None
    assert choice.notice.startswith("loss.backend=auto took native, as k2 does not work here (ModuleNotFoundError: ")


@pytest.mark.usefixtures("wrong_k2")
def test_auto_passes_by_a_k2_that_does_not_work() -> None:
    backend, notice = choose_backend(Backend.auto, CPU)
    assert backend is Backend.native
    assert notice is not None
    assert "its loss of 3.0000 should be 1.3863" in notice


@pytest.mark.usefixtures("no_k2")
def test_k2_that_is_asked_for_and_missing_is_refused_at_once() -> None:
    config = LossConfig(kind=LossKind.pruned, backend=Backend.k2)
    with pytest.raises(ValueError, match=r"loss\.backend=k2 does not work on cpu .*environment\.yml.*native"):
        refuse_missing_k2(config)
    refuse_missing_k2(LossConfig(kind=LossKind.full, backend=Backend.k2))  # which does not use it


def test_one_function_gives_both_losses() -> None:
    """With the trivial joiner and all positions kept, both are the full loss."""
    generator = torch.Generator().manual_seed(0)
    am, lm = torch.randn(3, 8, 6, generator=generator), torch.randn(3, 5, 6, generator=generator)
    target = Target(torch.randint(1, 6, (3, 4), generator=generator), torch.tensor([8, 5, 2]), torch.tensor([4, 0, 3]))

    def join(ranges: Tensor) -> Tensor:
        return am[:, :, None] + prune_predictions(lm, ranges)

    simple, pruned = pruned_losses(Backend.native, am, lm, join, target, Pruning(5, Smoothing()))
    full = full_transducer_loss(am[:, :, None] + lm[:, None], *target)
    torch.testing.assert_close(simple, full)
    torch.testing.assert_close(pruned, full)
