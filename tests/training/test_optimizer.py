"""The parameter groups, and the learning rate as a function of the step."""

from typing import Any

import pytest
from torch import nn

from chunkwise.training.optimizer import (
    OptimizerConfig,
    ScheduleConfig,
    ScheduleKind,
    build_optimizer,
    learning_rate,
    set_learning_rate,
)

UNIT = OptimizerConfig(lr=1.0)


def test_only_matrices_and_kernels_are_decayed() -> None:
    module = nn.ModuleDict(
        {
            "embedding": nn.Embedding(3, 2),
            "norm": nn.LayerNorm(2),
            "conv": nn.Conv1d(2, 2, 3),
            "linear": nn.Linear(2, 2),
        }
    )
    module["linear"].bias.requires_grad_(False)
    decayed, kept = build_optimizer(module, OptimizerConfig(weight_decay=0.5)).param_groups
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    assert {names[id(p)] for p in decayed["params"]} == {"conv.weight", "linear.weight"}
    assert {names[id(p)] for p in kept["params"]} == {"embedding.weight", "norm.weight", "norm.bias", "conv.bias"}
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ScheduleKind.linear, [0.1, 1.0, 0.55, 0.1]),
        (ScheduleKind.cosine, [0.1, 1.0, 0.55, 0.1]),
        (ScheduleKind.noam, [0.1, 1.0, (10 / 60) ** 0.5, (10 / 110) ** 0.5]),
        (ScheduleKind.constant, [0.1, 1.0, 1.0, 1.0]),
    ],
)
def test_each_schedule_warms_up_and_ends_where_it_says(kind: ScheduleKind, expected: list[float]) -> None:
    schedule = ScheduleConfig(kind=kind, warmup_steps=10, final_factor=0.1)
    rates = [learning_rate(UNIT, schedule, step, max_steps=110) for step in (1, 10, 60, 110)]
    assert rates == pytest.approx(expected)


def test_time_ends_the_schedule_only_where_asked() -> None:
    by_steps, by_time = ScheduleConfig(warmup_steps=0), ScheduleConfig(warmup_steps=0, by_time=True)
    assert learning_rate(UNIT, by_steps, 10, 100, time_share=0.5) == pytest.approx(0.9)
    assert learning_rate(UNIT, by_time, 10, 100, time_share=0.5) == pytest.approx(0.5)
    assert learning_rate(UNIT, by_time, 70, 100, time_share=0.5) == pytest.approx(0.3)
    warm = ScheduleConfig(warmup_steps=40, by_time=True)
    assert learning_rate(UNIT, warm, 40, 100, time_share=0.3) == 1.0  # ahead of its time: as without
    assert learning_rate(UNIT, warm, 40, 100, time_share=0.7) == pytest.approx(0.5)


def test_no_warmup_and_a_run_shorter_than_its_warmup() -> None:
    assert learning_rate(UNIT, ScheduleConfig(warmup_steps=0), 1, 10) == pytest.approx(0.9)
    assert learning_rate(UNIT, ScheduleConfig(warmup_steps=100), 5, 5) == pytest.approx(0.05)


def test_the_rate_reaches_every_group() -> None:
    optimizer = build_optimizer(nn.Linear(1, 1), UNIT)
    set_learning_rate(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


def test_senseless_values_are_refused_by_name() -> None:
    refused: list[tuple[type, dict[str, Any], str]] = [
        (OptimizerConfig, {"lr": 0.0}, r"optimizer\.lr=0\.0"),
        (OptimizerConfig, {"beta2": 1.0}, r"optimizer\.beta2=1\.0"),
        (OptimizerConfig, {"weight_decay": -1.0}, r"optimizer\.weight_decay=-1\.0"),
        (ScheduleConfig, {"warmup_steps": -1}, r"schedule\.warmup_steps=-1"),
        (ScheduleConfig, {"final_factor": 2.0}, r"schedule\.final_factor=2\.0"),
    ]
    for config, options, name in refused:
        with pytest.raises(ValueError, match=name):
            config(**options)
