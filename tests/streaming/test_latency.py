import pytest

from chunkwise.audio.fbank import Fbank, FbankConfig
from chunkwise.models.context import FULL, ChunkContext
from chunkwise.streaming.latency import Delays, Latency, emission_times


def test_quantiles_of_a_whole_follow_from_the_counts_of_its_parts() -> None:
    delays = [float(x) for x in range(100)]
    whole, parts = Latency(), [Latency(), Latency(), Latency()]
    whole.word.add(delays)
    for index, delay in enumerate(delays):
        parts[index % 3].word.add([delay])
    merged = Latency.merged([part.to_text() for part in parts])
    assert merged.summary() == whole.summary()
    assert merged.summary()["word_ms"] == {"count": 100, "mean": 49.5, "p50": 49.0, "p90": 89.0, "p99": 98.0}


def test_nothing_has_no_quantile() -> None:
    assert Delays().summary() == {"count": 0, "mean": None, "p50": None, "p90": None, "p99": None}


def test_a_token_is_known_when_its_chunk_is_complete_or_the_audio_ends() -> None:
    fbank = Fbank(FbankConfig())
    times = emission_times([0, 3, 4, 9], duration_s=0.42, fbank=fbank, context=ChunkContext(4, None))
    assert times.emitted_ms == [40, 160, 200, 400]
    assert times.available_ms == pytest.approx([167.5, 167.5, 327.5, 420.0])
    assert emission_times([0, 3], 0.42, fbank, FULL).available_ms == [420.0, 420.0]
