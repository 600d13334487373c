"""Unscale, check, clip, step: in this order, and only with finite numbers."""

import math
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from chunkwise.training.precision import (
    GradScalerConfig,
    OnNonfiniteLoss,
    Precision,
    PrecisionConfig,
    PrecisionKind,
)

CPU = torch.device("cpu")
KINDS = list(PrecisionKind)


def precision(kind: PrecisionKind, **scaling: Any) -> Precision:
    return Precision(PrecisionConfig(kind=kind, grad_scaler=GradScalerConfig(**scaling)), CPU)


def take_window(guard: Precision, optimizer: Optimizer, losses: list[Tensor]) -> bool:
    for loss in losses:
        guard.backward(loss)
    return guard.step(optimizer, max_grad_norm=1e9).skipped


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_clipped_and_logged_unscaled(kind: PrecisionKind) -> None:
    """Clipping scaled gradients gave (-9.2e-6, -1.2e-5) and a norm of 327680 elsewhere (pytorch/examples#1196)."""
    weight = nn.Parameter(torch.zeros(2))
    guard, optimizer = precision(kind), SGD([weight], lr=1.0)
    guard.backward((weight * torch.tensor([3.0, 4.0])).sum())
    outcome = guard.step(optimizer, max_grad_norm=1.0)
    assert outcome.grad_norm == pytest.approx(5.0)
    assert weight.tolist() == pytest.approx([-0.6, -0.8], abs=1e-5)
    assert weight.grad is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("constant", [True, False])
def test_a_bad_micro_batch_costs_its_window_once(kind: PrecisionKind, bad: float, constant: bool) -> None:
    """A check of the last micro-batch only let the others poison the sum (speechbrain/speechbrain#1936)."""
    weight = nn.Parameter(torch.tensor([1.0]))
    guard, optimizer = precision(kind), AdamW([weight], lr=0.1)
    assert not take_window(guard, optimizer, [weight.sum() for _ in range(4)])
    before = weight.item(), optimizer.state[weight]["step"].item(), optimizer.state[weight]["exp_avg"].item()
    # A loss may also be infinite while its gradient is finite.
    spoilt = weight.sum() + bad if constant else weight.sum() * bad
    assert take_window(guard, optimizer, [weight.sum(), spoilt, weight.sum(), weight.sum()])
    after = weight.item(), optimizer.state[weight]["step"].item(), optimizer.state[weight]["exp_avg"].item()
    assert after == before
    if kind is PrecisionKind.fp16:
        assert guard.scaler.get_scale() == 32768
    assert not take_window(guard, optimizer, [weight.sum() for _ in range(4)])
    assert weight.item() != before[0]
    assert optimizer.state[weight]["step"].item() == 2


def test_a_finite_loss_passes_bitwise_untouched() -> None:
    weight = nn.Parameter(torch.tensor([0.1, -0.3, 1e-30]))
    reference = torch.autograd.grad((weight.exp() * weight).sum(), weight)[0]
    precision(PrecisionKind.fp32).backward((weight.exp() * weight).sum())
    assert weight.grad is not None
    assert torch.equal(weight.grad, reference)


@pytest.mark.parametrize("kind", [PrecisionKind.fp32, PrecisionKind.bf16])
def test_scaling_is_inert_outside_fp16_and_says_so(kind: PrecisionKind) -> None:
    guard = precision(kind, init_scale=128.0, growth_interval=2)
    loss = torch.ones(1)
    assert guard.scaler.scale(loss) is loss
    assert guard.scaler.get_scale() == 1
    assert guard.notice == f"precision.kind={kind} needs no loss scaling: precision.grad_scaler.* is ignored"
    assert precision(kind).notice is None
    assert precision(PrecisionKind.fp16, init_scale=128.0).notice is None


def test_autocast_gives_the_format() -> None:
    formats = []
    for kind in KINDS:
        with precision(kind).autocast():
            formats.append((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
    assert formats == [torch.float32, torch.bfloat16, torch.float16]


def test_the_scaler_goes_on_where_it_stood_and_ignores_an_override_with_a_notice() -> None:
    """A resumed run that began again at 65536 diverged elsewhere (huggingface/transformers#34053)."""
    weight = nn.Parameter(torch.tensor([1.0]))
    guard, optimizer = precision(PrecisionKind.fp16, init_scale=1024.0, growth_interval=2), SGD([weight], lr=0.1)
    for _ in range(5):
        take_window(guard, optimizer, [weight.sum()])
    state = guard.state_dict()
    assert (state["scaler"]["scale"], state["scaler"]["_growth_tracker"]) == (4096.0, 1)
    again = precision(PrecisionKind.fp16, init_scale=8.0, growth_interval=7)
    notice = again.load_state_dict(state)
    assert notice is not None
    assert "is ignored" in notice
    assert again.state_dict() == state
    assert precision(PrecisionKind.fp16, init_scale=1024.0, growth_interval=2).load_state_dict(state) is None
    with pytest.raises(ValueError, match=r"precision\.kind=fp32 differs from the fp16 of the checkpoint"):
        precision(PrecisionKind.fp32).load_state_dict(state)


def test_hopeless_training_ends_with_a_reason() -> None:
    guard = precision(PrecisionKind.fp16, init_scale=1.0, min_scale=0.4)
    weight = nn.Parameter(torch.tensor([1.0]))
    optimizer = SGD([weight], lr=1.0)
    take_window(guard, optimizer, [weight.sum() * math.inf])
    assert guard.fault(math.inf, skipped_in_a_row=1) is None
    take_window(guard, optimizer, [weight.sum() * math.inf])
    fault = guard.fault(math.inf, skipped_in_a_row=2)
    assert fault == "the loss scale fell to 0.25, below precision.grad_scaler.min_scale=0.4"
    fault = precision(PrecisionKind.bf16).fault(1.0, skipped_in_a_row=30)
    assert fault is not None
    assert "30 steps in a row" in fault
    assert "precision.patience=30" in fault


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", [math.inf, math.nan])
def test_only_fp16_goes_on_after_a_loss_that_is_not_finite_unless_told_so(kind: PrecisionKind, loss: float) -> None:
    fault = precision(kind).fault(loss, skipped_in_a_row=1)
    assert (fault is None) == (kind is PrecisionKind.fp16)
    assert fault is None or "precision.on_nonfinite_loss=stop" in fault
    lenient = Precision(PrecisionConfig(kind=kind, on_nonfinite_loss=OnNonfiniteLoss.skip), CPU)
    assert lenient.fault(loss, skipped_in_a_row=29) is None
    assert lenient.fault(loss, skipped_in_a_row=30) is not None
    assert precision(kind).fault(1.0, skipped_in_a_row=1) is None  # only a gradient


def test_senseless_scalings_are_refused_by_name() -> None:
    for name, value in (("init_scale", 0.0), ("growth_factor", 1.0), ("backoff_factor", 1.0), ("growth_interval", 0)):
        with pytest.raises(ValueError, match=rf"precision\.grad_scaler\.{name}={value}"):
            GradScalerConfig(**cast(dict[str, Any], {name: value}))
