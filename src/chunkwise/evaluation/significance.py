"""How sure a word error rate is, and a difference of two: 95 % intervals by the bootstrap.

A resample draws as many blocks as there are, with replacement, and divides its sums once. Blocks are speakers where
every utterance names one and there are at least two, because the errors of one speaker come together; else they are
utterances. Two systems are compared on the same draws. Draws depend on the utterances alone: neither on their order,
nor on how many ranks scored them.

Reference: Bisani and Ney 2004, "Bootstrap estimates for confidence intervals in ASR performance evaluation".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Float64, Int64

from chunkwise.evaluation.tally import ScoredUtterance

Interval = tuple[float, float]
"""Low and high end of the middle 95 % of the resamples."""

RESAMPLES = 10_000
_SEED = 0
_TAIL = 0.025
_DRAWS_AT_A_TIME = 1 << 20


class Block(StrEnum):
    """What is drawn as a whole."""

    speaker = "speaker"
    utterance = "utterance"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """How the second of two systems differs from the first on the same utterances; rates are fractions."""

    difference: float  # the second's WER less the first's: below 0, the second is better
    interval: Interval
    probability_of_improvement: float  # share of resamples in which the second is better; a tie counts half


def block_of(utterances: Sequence[ScoredUtterance]) -> Block:
    """What is drawn as a whole from these utterances.

    >>> two = [ScoredUtterance(id, "one", "", 0, 1, 0, speaker=id) for id in ("a", "b")]
    >>> str(block_of(two)), str(block_of(two[:1]))
    ('speaker', 'utterance')
    """
    speakers = {utterance.speaker for utterance in utterances}
    return Block.speaker if len(speakers) > 1 and None not in speakers else Block.utterance


def wer_interval(utterances: Sequence[ScoredUtterance], resamples: int = RESAMPLES) -> Interval | None:
    """Between which bounds the corpus WER lies; `None` where the references have no word.

    >>> wer_interval([ScoredUtterance("a", "one two", "one", 0, 1, 0)])
    (0.5, 0.5)
    """
    counts = [(utterance.word_errors, len(utterance.reference.split())) for utterance in utterances]
    rates = _resampled_rates(_block_sums(utterances, counts), resamples)
    return _interval(rates) if len(rates) else None


def paired_difference(
    first: Sequence[ScoredUtterance], second: Sequence[ScoredUtterance], resamples: int = RESAMPLES
) -> PairedDifference | None:
    """How two systems differ on the same utterances, given in the same order; `None` where no reference has a word."""
    assert [row.id for row in first] == [row.id for row in second], "the systems must be paired utterance by utterance"
    counts = [
        (theirs.word_errors - mine.word_errors, len(mine.reference.split()))
        for mine, theirs in zip(first, second, strict=True)
    ]
    rates = _resampled_rates(_block_sums(first, counts), resamples)
    if not len(rates):
        return None
    total, words = map(sum, zip(*counts, strict=True))
    better, equal = int((rates < 0).sum()), int((rates == 0).sum())
    return PairedDifference(
        difference=total / words,
        interval=_interval(rates),
        probability_of_improvement=(2 * better + equal) / (2 * len(rates)),
    )


def _block_sums(
    utterances: Sequence[ScoredUtterance], counts: Sequence[tuple[int, int]]
) -> Int64[np.ndarray, "blocks 2"]:
    """Errors and words of each block, in the order of the blocks' names."""
    by_speaker = block_of(utterances) is Block.speaker
    sums: dict[str, tuple[int, int]] = {}
    for utterance, (errors, words) in zip(utterances, counts, strict=True):
        name = str(utterance.speaker) if by_speaker else utterance.id
        before = sums.get(name, (0, 0))
        sums[name] = before[0] + errors, before[1] + words
    return np.array([sums[name] for name in sorted(sums)], dtype=np.int64).reshape(-1, 2)


def _resampled_rates(sums: Int64[np.ndarray, "blocks 2"], resamples: int) -> Float64[np.ndarray, " rates"]:
    """Errors per word of each resample, sorted; a resample without a word has no rate and is left out."""
    generator, blocks = np.random.default_rng(_SEED), len(sums)
    if not sums[:, 1].any():
        return np.empty(0)
    errors, words = np.zeros((2, resamples), dtype=np.int64)
    step = max(1, _DRAWS_AT_A_TIME // blocks)
    for start in range(0, resamples, step):
        some = slice(start, min(start + step, resamples))
        drawn = generator.integers(blocks, size=(some.stop - start, blocks))
        errors[some], words[some] = (column.take(drawn).sum(axis=1) for column in np.ascontiguousarray(sums.T))
    return np.sort(errors[words > 0] / words[words > 0])


def _interval(rates: Float64[np.ndarray, " rates"]) -> Interval:
    """The middle 95 %, cut off alike on both sides, so that negated rates have the negated interval."""
    cut = int(_TAIL * len(rates))
    return float(rates[cut]), float(rates[len(rates) - 1 - cut])
