"""SpecAugment masks what it may, as its generator says."""

import pytest
import torch

from chunkwise.audio.augmentation import (
    AugmentConfig,
    NoiseAddition,
    SpeakerPerturbation,
    SpecAugment,
    build_augmentation,
)

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


SPEAKER = AugmentConfig(mel_warp=0.1, channel_std=0.3)


def test_speaker_perturbation_leaves_padding_alone_and_is_one_draw_per_utterance() -> None:
    features = torch.randn(3, 20, 16)
    lengths = torch.tensor([20, 11, 1])
    once = SpeakerPerturbation(SPEAKER)(features, lengths, torch.Generator().manual_seed(1))
    again = SpeakerPerturbation(SPEAKER)(features, lengths, torch.Generator().manual_seed(1))
    other = SpeakerPerturbation(SPEAKER)(features, lengths, torch.Generator().manual_seed(2))
    assert torch.equal(once, again)
    assert not torch.allclose(once, other)
    for row, length in enumerate(lengths):
        assert torch.equal(once[row, length:], features[row, length:])
    ones, generator = torch.ones(2, 9, 16), torch.Generator().manual_seed(3)
    constant = SpeakerPerturbation(SPEAKER)(ones, torch.tensor([9, 9]), generator)
    assert torch.allclose(constant, constant[:, :1].expand(-1, 9, -1))  # the same offset in every frame
    assert not torch.allclose(constant[0], constant[1])


def test_a_stretch_of_nothing_changes_nothing() -> None:
    features = torch.randn(2, 5, 8)
    none = SpeakerPerturbation(AugmentConfig())
    assert torch.allclose(none(features, torch.tensor([5, 5]), torch.Generator().manual_seed(0)), features)


def test_a_ramp_over_the_mels_is_stretched_by_at_most_the_configured_share() -> None:
    ramp = torch.arange(40.0).expand(500, 1, 40)
    warp = SpeakerPerturbation(AugmentConfig(mel_warp=0.1))
    slopes = warp(ramp, torch.ones(500, dtype=torch.long), torch.Generator().manual_seed(0))[:, 0, 10] / 10
    assert slopes.min() >= 0.9 - 1e-5
    assert slopes.max() <= 1.1 + 1e-5
    assert slopes.max() - slopes.min() > 0.15


def test_what_is_not_asked_for_is_not_built() -> None:
    assert build_augmentation(AugmentConfig()) is None
    features, lengths = torch.randn(2, 30, 16), torch.tensor([30, 20])
    both = build_augmentation(AugmentConfig(mel_warp=0.1, mel_masks=1, mel_mask_bins=8))
    assert both is not None
    assert both(features, lengths, torch.Generator().manual_seed(4)).shape == features.shape


def test_noise_keeps_its_ratio_and_leaves_padding_alone() -> None:
    add = NoiseAddition(AugmentConfig(noise_snr_db=[10.0, 20.0]))
    waveforms, lengths = torch.sin(torch.arange(8000) / 5).repeat(40, 1), torch.full((40,), 6000)
    noisy = add(waveforms, lengths, torch.Generator().manual_seed(0))
    assert torch.equal(noisy[:, 6000:], waveforms[:, 6000:])
    noise = (noisy - waveforms)[:, :6000].square().mean(dim=1)
    snr_db = 10 * (waveforms[:, :6000].square().mean(dim=1) / noise).log10()
    assert snr_db.min() > 9.7
    assert snr_db.max() < 20.3
    assert snr_db.max() - snr_db.min() > 7
    assert torch.equal(noisy, add(waveforms, lengths, torch.Generator().manual_seed(0)))
    assert torch.equal(add(torch.zeros(1, 9), torch.tensor([9]), torch.Generator()), torch.zeros(1, 9))


def test_an_impossible_ratio_names_its_key() -> None:
    with pytest.raises(ValueError, match=r"augment\.noise_snr_db=\[20.0, 10.0\]"):
        AugmentConfig(noise_snr_db=[20.0, 10.0])
