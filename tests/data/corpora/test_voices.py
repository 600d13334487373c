from itertools import combinations

import pytest

from chunkwise.data.corpora.espeak import Delivery, speak
from chunkwise.data.corpora.voices import ACCENTS, VARIANTS


def test_no_variant_is_in_two_splits() -> None:
    for one, other in combinations(VARIANTS.values(), 2):
        assert not set(one) & set(other)


@pytest.mark.parametrize("accent", ACCENTS)
def test_each_accent_speaks_in_its_own_way(accent: str) -> None:
    samples = {name: speak("three four nine", Delivery(voice=f"{name}+m3")).samples.tobytes() for name in ACCENTS}
    assert list(samples.values()).count(samples[accent]) == 1


@pytest.mark.parametrize("split", VARIANTS)
def test_each_variant_says_every_word(split: str) -> None:
    for variant in VARIANTS[split]:
        speech = speak("three four nine", Delivery(voice=f"gmw/en-US+{variant}"))
        assert len(speech.words) == 3, variant
        assert 0.5 < len(speech.samples) / speech.rate_hz < 2, variant
        assert abs(speech.samples.astype(int)).max() > 3000, variant
