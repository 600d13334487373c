import numpy as np
import pytest

from chunkwise.data.corpora.espeak import Delivery, speak

DELIVERIES = [
    Delivery(voice="en-us+f2", seed=5),  # breath and flutter: the variants with state
    Delivery(voice="en+klatt3", rate_wpm=200, seed=6),
    Delivery(voice="en-029+adam", pitch=70, seed=7),
    Delivery(voice="en-gb-scotland+f1", word_gap_10ms=10, seed=8),
]


def test_the_same_arguments_give_the_same_samples_in_any_order() -> None:
    forth = [speak("seven two", delivery).samples for delivery in DELIVERIES]
    back = [speak("seven two", delivery).samples for delivery in reversed(DELIVERIES)][::-1]
    assert all(np.array_equal(first, second) for first, second in zip(forth, back, strict=True))
    assert len({samples.tobytes() for samples in forth}) == len(DELIVERIES)


def test_every_part_of_the_delivery_is_heard() -> None:
    plain = speak("seven two", Delivery(voice="en-us+f2")).samples
    for change in ({"rate_wpm": 120}, {"pitch": 80}, {"pitch_range": 90}, {"word_gap_10ms": 10}, {"seed": 2}):
        assert not np.array_equal(speak("seven two", Delivery(voice="en-us+f2", **change)).samples, plain), change


def test_words_are_timed_in_order_and_hold_the_sound() -> None:
    speech = speak("three one four", Delivery(voice="gmw/en-US+m3", word_gap_10ms=20))
    times = speech.words
    assert len(times) == 3
    assert all(start < end for start, end in times)
    assert all(end < start for (_, end), (start, _) in zip(times, times[1:], strict=False)), "a gap between words"
    inside = np.zeros(len(speech.samples), dtype=bool)
    for start, end in times:
        inside[round(start * speech.rate_hz) : round(end * speech.rate_hz)] = True
    power = speech.samples.astype(np.float64) ** 2
    assert power[inside].sum() > 0.99 * power.sum()


def test_an_unknown_voice_is_named() -> None:
    with pytest.raises(ValueError, match="no voice 'xx-nowhere'"):
        speak("one", Delivery(voice="xx-nowhere"))
