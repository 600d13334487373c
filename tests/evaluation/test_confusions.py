"""Confusions are counted over the alignments, the most frequent first, in an order that nothing else decides."""

import random

import pytest

from chunkwise.evaluation.confusions import Confusion, Confusions, most_frequent
from chunkwise.evaluation.tally import ScoredUtterance
from chunkwise.evaluation.wer import count_errors


def scored(*pairs: tuple[str, str]) -> list[ScoredUtterance]:
    rows = []
    for index, (reference, hypothesis) in enumerate(pairs):
        errors = count_errors(reference, hypothesis)
        counts = errors.substitutions, errors.deletions, errors.insertions
        rows.append(ScoredUtterance(f"u{index}", reference, hypothesis, *counts))
    return rows


def listed(confusions: tuple[Confusion, ...]) -> list[tuple[str | None, str | None, int]]:
    return [(row.spoken, row.heard, row.count) for row in confusions]


def test_each_kind_is_counted_and_the_most_frequent_comes_first() -> None:
    found = most_frequent(
        scored(
            ("five one", "nine one"),
            ("five", "nine"),
            ("nine", "five"),
            ("a b c", "a c"),
            ("a c", "a b c"),
            ("a c", "a b c"),
        )
    )
    assert listed(found.substitutions) == [("five", "nine", 2), ("nine", "five", 1)]
    assert listed(found.deletions) == [("b", None, 1)]
    assert listed(found.insertions) == [(None, "b", 2)]


def test_equal_counts_stand_in_alphabetical_order() -> None:
    found = most_frequent(scored(("b", "y"), ("b", "x"), ("a", "z"), ("c", "w"), ("c", "w")))
    assert listed(found.substitutions) == [("c", "w", 2), ("a", "z", 1), ("b", "x", 1), ("b", "y", 1)]


def test_the_order_of_the_utterances_changes_nothing() -> None:
    draws = random.Random(1)
    texts = [(" ".join(draws.choices("abc", k=4)), " ".join(draws.choices("abc", k=3))) for _ in range(60)]
    rows = scored(*texts)
    assert most_frequent(draws.sample(rows, len(rows))) == most_frequent(rows)


def test_every_error_is_one_confusion() -> None:
    draws = random.Random(2)
    rows = scored(*((" ".join(draws.choices("abcd", k=5)), " ".join(draws.choices("abcd", k=5))) for _ in range(40)))
    found = most_frequent(rows, top=1000)
    for kind in ("substitutions", "deletions", "insertions"):
        assert sum(row.count for row in getattr(found, kind)) == sum(getattr(row, kind) for row in rows)


def test_empty_sides_are_insertions_and_deletions_alone() -> None:
    found = most_frequent(scored(("", "x y"), ("a b", "a b"), ("", ""), ("c", "")))
    assert (found.substitutions, listed(found.deletions)) == ((), [("c", None, 1)])
    assert listed(found.insertions) == [(None, "x", 1), (None, "y", 1)]


def test_nothing_wrong_has_no_confusion() -> None:
    nothing = Confusions(substitutions=(), deletions=(), insertions=())
    assert most_frequent([]) == nothing
    assert most_frequent(scored(("one two", "one two"))) == nothing


def test_top_limits_each_kind() -> None:
    found = most_frequent(scored(("a b c", "x y z"), ("a", "x"), ("d e", ""), ("", "f g")), top=1)
    assert listed(found.substitutions) == [("a", "x", 2)]
    assert (len(found.deletions), len(found.insertions)) == (1, 1)
    with pytest.raises(ValueError, match="top=0 must be 1 or more"):
        most_frequent([], top=0)
