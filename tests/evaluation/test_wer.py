"""Error rates are exact integers under one normalisation, whatever the order of adding."""

from functools import reduce
from operator import add

import pytest

from chunkwise.evaluation.tables import show_rate
from chunkwise.evaluation.wer import ErrorCounts, align_words, count_errors, show_alignment


def total(references: list[str], hypotheses: list[str]) -> ErrorCounts:
    pairs = zip(references, hypotheses, strict=True)
    return reduce(add, (count_errors(*pair) for pair in pairs), ErrorCounts())


def test_empty_references_and_hypotheses_are_counted() -> None:  # jitsi/jiwer#98
    counts = total(["", "a b", "", "c"], ["x y", "a b", "", ""])
    assert (counts.substitutions, counts.deletions, counts.insertions, counts.words) == (0, 1, 2, 3)
    assert counts.wer == 1.0
    assert (counts.utterances, counts.sentence_errors) == (4, 2)
    assert count_errors("", "x y").wer is None
    assert count_errors("", "").word_errors == 0


def test_a_rate_without_references_is_undefined() -> None:
    counts = total(["", " "], ["", "a"])
    assert counts.wer is None
    assert counts.cer is None
    assert show_rate(counts.wer) == "n/a"


@pytest.mark.parametrize("reference", ["a\tb", "a\u00a0b", " a  b\r\n", "a\u3000b", "\ufeffa b\u200b"])
def test_any_white_space_separates_words_and_no_invisible_character_counts(reference: str) -> None:  # jitsi/jiwer#129
    assert count_errors(reference, "a b").word_errors == 0
    assert count_errors("a b", reference).character_errors == 0


def test_character_errors_count_spaces() -> None:  # jitsi/jiwer#32
    counts = count_errors("the cat sat on the mat", "the cat sit on the")
    assert (counts.word_errors, counts.words) == (2, 6)
    assert (counts.character_errors, counts.characters) == (5, 22)
    assert count_errors("a b", "ab").cer == pytest.approx(1 / 3)


def test_an_unknown_piece_is_exactly_one_wrong_word() -> None:  # speechbrain/speechbrain#2863
    counts = count_errors("hello", "⁇")
    assert (counts.substitutions, counts.deletions, counts.insertions) == (1, 0, 0)


def test_the_corpus_rate_is_not_a_mean_of_rates() -> None:  # NVIDIA-NeMo/Speech#3114
    ten = "a b c d e f g h i j"
    counts = total([ten, "x"], [ten, "y z"])
    assert (counts.word_errors, counts.words, counts.substitutions, counts.insertions) == (2, 11, 1, 1)
    assert show_rate(counts.wer) == "18.18 %"


def test_rates_may_be_read_between_additions() -> None:
    first, second = ErrorCounts(words=4, substitutions=1), ErrorCounts(words=6, deletions=3)
    counts = first + second
    assert (counts.wer, counts.wer) == (0.4, 0.4)
    assert (ErrorCounts() + ErrorCounts(words=5)).wer == 0.0


def test_counts_beyond_float32_stay_exact() -> None:  # Lightning-AI/torchmetrics#383
    counts = ErrorCounts(words=16_777_216, substitutions=1) + ErrorCounts(words=1, substitutions=1)
    assert counts.words == 16_777_217


def test_an_alignment_shows_the_counted_errors() -> None:
    pairs = align_words("one two three four", "one too three three for")
    counts = count_errors("one two three four", "one too three three for")
    assert sum(spoken is None for spoken, _ in pairs) == counts.insertions == 1
    assert sum(spoken != heard for spoken, heard in pairs) == counts.word_errors == 3
    assert "[two→too]" in show_alignment(pairs)
    assert align_words("", "") == []


def test_a_star_is_a_word_like_any_other() -> None:
    assert align_words("a * b", "a b") == [("a", "a"), ("*", None), ("b", "b")]
