"""The objective: its config, its flow and what it builds."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from chunkwise.losses.config import LossConfig, LossKind
from chunkwise.losses.objective import Losses, Objective
from chunkwise.models.context import FULL
from chunkwise.models.predictor import PredictorKind
from chunkwise.models.transducer import Transducer

Build = Callable[..., Transducer]
CONFIGS = [
    LossConfig(kind=kind, ctc_weight=weight, prune_range=3, warmup_steps=10)
    for kind in LossKind
    for weight in (0.0, 0.3)
]


def utterances(target_lengths: tuple[int, ...] = (3, 5, 0)) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, lengths, tokens and their lengths; in the second there is little sound for its tokens."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(3, 60, 8, generator=generator)
    tokens = torch.randint(1, 7, (3, 5), generator=generator)
    return features, torch.tensor([60, 24, 48]), tokens, torch.tensor(target_lengths)


@pytest.mark.parametrize("prune_range", [0, 1])
def test_too_small_a_prune_range_is_refused(prune_range: int) -> None:
    """Regression: k2-fsa/icefall#1920, k2-fsa/k2#1271."""
    with pytest.raises(ValueError, match=rf"loss\.prune_range={prune_range} must be 2 or more"):
        LossConfig(prune_range=prune_range)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"ctc_weight": 1.0}, "loss.ctc_weight=1.0"),
        ({"ctc_weight": -0.1}, "loss.ctc_weight=-0.1"),
        ({"simple_weight": 0.0}, "loss.simple_weight=0.0"),
        ({"lm_scale": 0.7, "am_scale": 0.3}, "loss.lm_scale=0.7"),
        ({"warmup_steps": -1}, "loss.warmup_steps=-1"),
        ({"delay_penalty": -0.1}, "loss.delay_penalty=-0.1"),
    ],
)
def test_impossible_values_are_refused_by_name(values: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        LossConfig(**values)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("kind", PredictorKind)
def test_losses_are_per_utterance_and_finite_and_reach_every_parameter(
    config: LossConfig, kind: PredictorKind, tiny_transducer: Build
) -> None:
    """Regression: speechbrain/speechbrain#2140, #2340, #701."""
    objective = Objective(tiny_transducer(kind), config)
    losses = objective(*utterances(), FULL)
    for values in (value for value in losses if value is not None):
        assert values.shape == (3,)
        assert values.dtype == torch.float32
        assert values.isfinite().all()
    assert (losses.ctc is None) == (config.ctc_weight == 0)
    losses.total.sum().backward()
    unused = [name for name, parameter in objective.named_parameters() if parameter.grad is None]
    assert unused == []


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("filler", [0, 3, 6])
def test_padding_means_nothing(config: LossConfig, filler: int, tiny_transducer: Build) -> None:
    objective = Objective(tiny_transducer(PredictorKind.lstm), config)
    features, lengths, tokens, token_lengths = utterances()
    expected = objective(features, lengths, tokens, token_lengths, FULL).total
    features = features.masked_fill((torch.arange(60) >= lengths[:, None])[:, :, None], float("nan"))
    tokens = tokens.masked_fill(torch.arange(5) >= token_lengths[:, None], filler)
    features = torch.nn.functional.pad(features, (0, 0, 0, 9), value=1e4)
    tokens = torch.nn.functional.pad(tokens, (0, 2), value=filler)
    losses = objective(features, lengths, tokens, token_lengths, FULL).total
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)
    losses.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in objective.parameters())


@pytest.mark.parametrize("config", CONFIGS)
def test_a_batch_of_empty_transcripts_trains(config: LossConfig, tiny_transducer: Build) -> None:
    losses = Objective(tiny_transducer(), config)(*utterances((0, 0, 0)), FULL)
    assert losses.total.isfinite().all()
    losses.total.sum().backward()


@pytest.mark.parametrize("config", CONFIGS)
def test_batch_mates_change_nothing(config: LossConfig, tiny_transducer: Build) -> None:
    objective = Objective(tiny_transducer(), config)
    together: Losses = objective(*utterances(), FULL)
    for row in range(3):
        features, lengths, tokens, token_lengths = (part[row : row + 1] for part in utterances())
        alone: Losses = objective(features[:, : int(lengths)], lengths, tokens, token_lengths, FULL)
        torch.testing.assert_close(alone.total[0], together.total[row], rtol=1e-4, atol=1e-4)


def test_a_huge_prune_range_is_the_full_loss(tiny_transducer: Build) -> None:
    """With the simple model's share taken away, what is left is the full loss."""
    model = tiny_transducer()
    full = Objective(model, LossConfig())(*utterances(), FULL).total
    config = LossConfig(kind=LossKind.pruned, prune_range=1000, simple_weight=1e-9)
    pruned = Objective(model, config)(*utterances(), FULL).total
    torch.testing.assert_close(pruned, full, rtol=1e-5, atol=1e-4)


def test_augmentation_sees_normalised_features(tiny_transducer: Build) -> None:
    model = tiny_transducer()
    model.normalisation.set_statistics(torch.full((8,), 4.0), torch.full((8,), 2.0))
    seen = []

    def silence(features: Tensor, lengths: Tensor) -> Tensor:
        seen.append((features, lengths))
        return torch.zeros_like(features)

    features, lengths, tokens, token_lengths = utterances()
    objective = Objective(model, LossConfig())
    augmented = objective(features, lengths, tokens, token_lengths, FULL, augment=silence)
    torch.testing.assert_close(seen[0][0], model.normalisation(features, lengths))
    flat = objective(torch.full_like(features, 4.0), lengths, tokens, token_lengths, FULL)
    torch.testing.assert_close(augmented.total, flat.total)


def test_warm_up_moves_weight_to_the_pruned_loss() -> None:
    config = LossConfig(kind=LossKind.pruned, simple_weight=0.5, warmup_steps=10)
    assert [config.scales(step) for step in (0, 10, 20)] == [(1.0, 0.1), (0.5, 1.0), (0.5, 1.0)]
    assert LossConfig(kind=LossKind.pruned).scales(0) == (0.5, 1.0)


@pytest.mark.parametrize("config", CONFIGS)
def test_autocast_gives_nearly_the_same_loss(config: LossConfig, tiny_transducer: Build) -> None:
    """Regression: k2-fsa/icefall#283, espnet/espnet#3237."""
    objective = Objective(tiny_transducer(), config)
    expected = objective(*utterances(), FULL).total
    with torch.autocast("cpu", torch.bfloat16):
        losses = objective(*utterances(), FULL).total
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, expected, rtol=1e-2, atol=1e-2)
