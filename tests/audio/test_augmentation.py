"""SpecAugment masks what it may, as its generator says."""

import pytest
import torch

from chunkwise.audio.augmentation import AugmentConfig, SpecAugment

CONFIG = AugmentConfig(time_masks=2, time_mask_frames=10, time_mask_fraction=0.5, mel_masks=2, mel_mask_bins=8)
LENGTHS = torch.tensor([100, 12, 0])


def draw(seed: int, config: AugmentConfig = CONFIG) -> torch.Tensor:
    return SpecAugment(config)(torch.ones(3, 100, 40), LENGTHS, torch.Generator().manual_seed(seed))


def test_padding_is_not_touched() -> None:
    for seed in range(20):
        masked = draw(seed)
        for row, length in zip(masked, LENGTHS.tolist(), strict=True):
            assert bool((row[length:] == 1).all())


def test_masks_keep_their_limits_and_reach_them() -> None:
    masked = torch.stack([draw(seed)[0] for seed in range(200)])
    frames = (masked == 0).all(2).sum(1)
    bins = (masked == 0).all(1).sum(1)
    assert int(frames.max()) <= 20
    assert int(bins.max()) <= 16
    assert int(frames.max()) > 15
    assert int(bins.max()) > 12
    one = AugmentConfig(time_masks=1, time_mask_frames=50, time_mask_fraction=0.25)
    longest = max(int((draw(seed, one)[1] == 0).all(1).sum()) for seed in range(100))
    assert longest == 3  # a quarter of 12 frames
    edges = torch.stack([draw(seed, one)[1][[0, 11], 0] for seed in range(100)])
    assert bool((edges == 0).any(0).all())  # the first and the last frame can be masked


def test_utterances_and_seeds_differ_and_repeat() -> None:
    # nnaisense/bayesian-flow-networks#3: the same noise everywhere
    config = AugmentConfig(mel_masks=1, mel_mask_bins=20)
    masked = SpecAugment(config)(
        torch.ones(8, 1, 40), torch.ones(8, dtype=torch.int64), torch.Generator().manual_seed(3)
    )
    assert len({tuple(row.flatten().tolist()) for row in masked}) > 4
    assert torch.equal(draw(5), draw(5))
    assert not torch.equal(draw(5), draw(6))


def test_nothing_is_masked_by_default() -> None:
    assert bool((draw(1, AugmentConfig()) == 1).all())


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"speed_factors": []}, "augment.speed_factors="),
        ({"speed_factors": [0.1]}, "augment.speed_factors="),
        ({"time_masks": -1}, "augment.time_masks=-1"),
        ({"time_mask_fraction": 1.5}, "augment.time_mask_fraction=1.5"),
    ],
)
def test_impossible_values_name_their_key(values: dict[str, int], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        AugmentConfig(**values)  # pyright: ignore[reportArgumentType]
