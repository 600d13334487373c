"""Strings of spoken digits: what the digit corpora share."""

import numpy as np

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SHORTEST, LONGEST = 2, 7  # digits in a string
SPLITS = ("train", "dev", "test")


def generator(seed: int, split: str, index: int, purpose: int = 0) -> np.random.Generator:
    """The random numbers of one utterance: they do not depend on how many others there are."""
    return np.random.default_rng([seed, SPLITS.index(split), index, purpose])


def draw_length(random: np.random.Generator) -> int:
    """How many digits a string has: 2 to 7, all equally often."""
    return int(random.integers(SHORTEST, LONGEST + 1))


def spell(digits: list[int]) -> str:
    """The digits as words.

    >>> spell([3, 1, 4])
    'three one four'
    """
    return " ".join(DIGITS[digit] for digit in digits)
