"""Intervals and differences against what can be worked out by hand; order and ranks change nothing."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from chunkwise.evaluation.significance import Block, block_of, paired_difference, wer_interval
from chunkwise.evaluation.tally import ScoredUtterance


def scored(
    errors: Sequence[int], words: int = 1, speakers: Sequence[str | None] | None = None
) -> list[ScoredUtterance]:
    """Utterances of so many words each, with so many deletions or insertions."""
    text = " ".join(["w"] * words)
    names = speakers or [None] * len(errors)
    return [
        ScoredUtterance(f"u{index:04d}", text, "", 0, count, 0, speaker=name)
        for index, (count, name) in enumerate(zip(errors, names, strict=True))
    ]


def test_a_set_without_errors_has_no_width() -> None:
    assert wer_interval(scored([0] * 50, words=4)) == (0.0, 0.0)


def test_one_utterance_is_a_point() -> None:
    assert wer_interval(scored([3], words=7)) == (3 / 7, 3 / 7)


def test_two_utterances_span_both() -> None:
    assert wer_interval(scored([0, 1], words=2)) == (0.0, 0.5)  # each extreme has a quarter of the resamples


def test_long_utterances_weigh_more() -> None:
    long, short = scored([0, 0], words=99)[0], replace(scored([0, 1])[1], id="z")
    assert wer_interval([long, short]) == (0.0, 1.0)
    middle = wer_interval([long, *(replace(short, id=f"z{index}") for index in range(3))])
    assert middle is not None
    assert middle[0] == pytest.approx(1 / (3 * 99 + 1))  # three times the long one: more than 2.5 % of the resamples


def test_without_a_word_there_is_no_rate() -> None:
    assert wer_interval([]) is None
    assert wer_interval(scored([1, 0], words=0)) is None
    assert paired_difference(scored([1], words=0), scored([0], words=0)) is None


def test_resamples_without_a_word_are_left_out() -> None:
    silent, spoken = ScoredUtterance("a", "", "x", 0, 0, 1), ScoredUtterance("b", "one two", "one two", 0, 0, 0)
    assert wer_interval([silent, spoken]) == (0.0, 0.5)


@pytest.mark.parametrize(("share", "count"), [(0.3, 400), (0.05, 1000)])
def test_the_interval_is_that_of_the_normal_approximation(share: float, count: int) -> None:
    wrong = round(share * count)
    interval = wer_interval(scored([1] * wrong + [0] * (count - wrong)))
    half = 1.96 * math.sqrt(share * (1 - share) / count)
    assert interval == pytest.approx((share - half, share + half), abs=0.15 * half)


def test_the_interval_holds_the_true_rate_as_often_as_it_says() -> None:
    draws, share, held = np.random.default_rng(7), 0.3, 0
    for _ in range(300):
        interval = wer_interval(scored((draws.random(100) < share).astype(int).tolist()), resamples=1000)
        assert interval is not None
        held += interval[0] <= share <= interval[1]
    assert 0.91 <= held / 300 <= 0.98


def test_the_errors_of_a_speaker_come_together() -> None:
    errors, names = [1] * 50 + [0] * 50, ["s"] * 50 + ["t"] * 50
    assert wer_interval(scored(errors, speakers=names)) == (0.0, 1.0)
    apart = wer_interval(scored(errors))
    assert apart == pytest.approx((0.4, 0.6), abs=0.015)
    for others in (["s"] * 100, [*names[:-1], None]):
        assert wer_interval(scored(errors, speakers=others)) == apart


def test_blocks_are_speakers_only_where_all_are_known() -> None:
    assert block_of(scored([0, 0], speakers=["s", "t"])) is Block.speaker
    for names in (["s", "s"], ["s", None], [None, None]):
        assert block_of(scored([0, 0], speakers=names)) is Block.utterance


@pytest.mark.parametrize("named", [True, False])
def test_the_order_changes_nothing(named: bool) -> None:
    order = random.Random(3)
    errors = [order.randrange(4) for _ in range(60)]
    names = [f"s{order.randrange(7)}" for _ in errors] if named else None
    first, second = scored(errors, 5, names), scored(errors[::-1], 5, names)
    interval, difference = wer_interval(first), paired_difference(first, second)
    shuffled = order.sample(range(60), 60)
    assert wer_interval([first[index] for index in shuffled]) == interval
    assert paired_difference([first[i] for i in shuffled], [second[i] for i in shuffled]) == difference


def test_a_system_equals_itself() -> None:
    rows = scored([0, 2, 1, 0], words=3)
    result = paired_difference(rows, rows)
    assert result is not None
    assert (result.difference, result.interval, result.probability_of_improvement) == (0.0, (0.0, 0.0), 0.5)


def test_swapping_the_systems_negates_the_difference() -> None:
    draws = random.Random(5)
    first, second = (scored([draws.randrange(3) for _ in range(40)], words=4) for _ in range(2))
    ahead, back = paired_difference(first, second), paired_difference(second, first)
    assert ahead is not None
    assert back is not None
    assert back.difference == -ahead.difference
    assert back.interval == (-ahead.interval[1], -ahead.interval[0])
    assert back.probability_of_improvement == pytest.approx(1 - ahead.probability_of_improvement, abs=1e-12)


def test_the_difference_is_that_of_the_rates() -> None:
    first, second = scored([1, 1, 2], words=4), scored([0, 1, 1], words=4)
    result = paired_difference(first, second)
    assert result is not None
    assert result.difference == pytest.approx(2 / 12 - 4 / 12)


def test_the_probability_counts_ties_half() -> None:
    first, second = scored([1, 1]), scored([0, 1])  # better in three of four draws, equal in the fourth
    result = paired_difference(first, second)
    assert result is not None
    assert result.probability_of_improvement == pytest.approx(0.875, abs=0.01)


def test_pairing_sees_what_two_intervals_cannot() -> None:
    hard = [index % 10 for index in range(200)]
    first, second = scored([count + 1 for count in hard], words=10), scored(hard, words=10)
    result, mine, theirs = paired_difference(first, second), wer_interval(first), wer_interval(second)
    assert result is not None
    assert mine is not None
    assert theirs is not None
    assert result.interval == (-0.1, -0.1)
    assert result.probability_of_improvement == 1.0
    assert mine[1] - mine[0] > 0.05


def test_systems_that_are_not_paired_are_a_fault() -> None:
    rows = scored([0, 1])
    with pytest.raises(AssertionError, match="paired utterance by utterance"):
        paired_difference(rows, rows[::-1])
