"""Two systems on the same utterances: how their word error rates differ, and where.

The comparison is paired: both are drawn alike in every resample, so that what is hard for both does not hide a
difference. See `chunkwise.evaluation.significance`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chunkwise.evaluation.hypotheses import read_pair
from chunkwise.evaluation.layout import MARKS, Alignment, Section, Table, to_markdown
from chunkwise.evaluation.significance import (
    Block,
    Interval,
    PairedDifference,
    block_of,
    paired_difference,
    wer_interval,
)
from chunkwise.evaluation.tables import show_interval, show_rate
from chunkwise.evaluation.tally import ScoredUtterance
from chunkwise.evaluation.typed_json import to_json, write_atomically

SHOWN = 20
"""How many utterances `comparison.md` aligns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemScore:
    """The word errors of one of the systems; `wer` is a fraction, `None` where the references have no word."""

    path: str  # as it was named
    substitutions: int
    deletions: int
    insertions: int
    sentence_errors: int
    wer: float | None
    interval: Interval | None

    @property
    def word_errors(self) -> int:
        """Substitutions, deletions and insertions together."""
        return self.substitutions + self.deletions + self.insertions


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How the second of two systems differs from the first."""

    first: SystemScore
    second: SystemScore
    words: int
    block: Block  # what was drawn as a whole
    difference: PairedDifference | None  # `None` where the references have no word
    pairs: tuple[tuple[ScoredUtterance, ScoredUtterance], ...]  # sorted by id

    @property
    def better(self) -> int:
        """Utterances in which the second makes fewer word errors."""
        return sum(theirs.word_errors < mine.word_errors for mine, theirs in self.pairs)

    @property
    def worse(self) -> int:
        """Utterances in which the second makes more word errors."""
        return sum(theirs.word_errors > mine.word_errors for mine, theirs in self.pairs)

    @property
    def equal(self) -> int:
        """Utterances in which both make as many word errors."""
        return len(self.pairs) - self.better - self.worse

    @property
    def only_first_right(self) -> tuple[str, ...]:
        """Ids of the utterances in which the first alone makes no word error."""
        return tuple(mine.id for mine, theirs in self.pairs if not mine.word_errors and theirs.word_errors)

    @property
    def only_second_right(self) -> tuple[str, ...]:
        """Ids of the utterances in which the second alone makes no word error."""
        return tuple(mine.id for mine, theirs in self.pairs if mine.word_errors and not theirs.word_errors)

    @property
    def most_different(self) -> tuple[tuple[ScoredUtterance, ScoredUtterance], ...]:
        """The pairs whose numbers of word errors differ: the largest difference first, then by id."""
        distance = {mine.id: abs(theirs.word_errors - mine.word_errors) for mine, theirs in self.pairs}
        different = [pair for pair in self.pairs if distance[pair[0].id]]
        return tuple(sorted(different, key=lambda pair: (-distance[pair[0].id], pair[0].id)))


def compare(first: Path, second: Path) -> Comparison:
    """Compare two `hypotheses.jsonl`, each named itself or by its evaluation's folder; `read_pair` tells the errors."""
    mine, theirs = read_pair(first, second)
    return Comparison(
        first=_score(first, mine),
        second=_score(second, theirs),
        words=sum(len(row.reference.split()) for row in mine),
        block=block_of(mine),
        difference=paired_difference(mine, theirs),
        pairs=tuple(zip(mine, theirs, strict=True)),
    )


def show_comparison(comparison: Comparison) -> str:
    """The comparison for people: a line for each system and one for the difference."""
    lines = [
        f"{name:<6} WER {show_rate(score.wer)}{_between(score.interval)}, {score.path}"
        for name, score in (("first", comparison.first), ("second", comparison.second))
    ]
    return "\n".join([*lines, _verdict(comparison)])


def write_comparison(folder: Path, comparison: Comparison) -> None:
    """Write `comparison.json`, with every id that only one system gets right, and `comparison.md`."""
    write_atomically(folder / "comparison.md", _page(comparison))
    write_atomically(folder / "comparison.json", to_json(_content(comparison)))


def _score(path: Path, rows: Sequence[ScoredUtterance]) -> SystemScore:
    words, errors = sum(len(row.reference.split()) for row in rows), sum(row.word_errors for row in rows)
    return SystemScore(
        path=path.as_posix(),
        substitutions=sum(row.substitutions for row in rows),
        deletions=sum(row.deletions for row in rows),
        insertions=sum(row.insertions for row in rows),
        sentence_errors=sum(row.word_errors > 0 for row in rows),
        wer=errors / words if words else None,
        interval=wer_interval(rows),
    )


def _between(interval: Interval | None) -> str:
    return "" if interval is None else f" ({show_interval(interval)})"


def _verdict(comparison: Comparison) -> str:
    """What the difference is, and whether it can be told from none."""
    difference = comparison.difference
    if difference is None:
        return "The references have no word, so that there is no rate to compare."
    low, high = difference.interval
    if low <= 0 <= high:
        reading = "these utterances do not tell the two apart"
    else:
        reading = f"the {'second' if high < 0 else 'first'} is better"
    return (
        f"The second's WER is {_points(difference.difference)} points from the first's, between {_points(low)} and "
        f"{_points(high)} in 95 % of resamples over {comparison.block}s, and lower in "
        f"{100 * difference.probability_of_improvement:.1f} % of them (a tie counts half): {reading}. "
        f"It makes fewer errors in {comparison.better}, more in {comparison.worse} and as many in {comparison.equal} "
        f"of {len(comparison.pairs)} utterances."
    )


def _points(rate: float) -> str:
    return f"{100 * rate + 0.0:+.2f}".replace("-", "−")


def _page(comparison: Comparison) -> str:
    scores = ("first", comparison.first), ("second", comparison.second)
    rows = [
        [
            name,
            score.path,
            show_rate(score.wer),
            "n/a" if score.interval is None else show_interval(score.interval),
            *map(str, (score.substitutions, score.deletions, score.insertions, score.sentence_errors)),
        ]
        for name, score in scores
    ]
    header = ["", "hypotheses", "WER", "95 % interval", "substitutions", "deletions", "insertions", "utterances wrong"]
    right = [["first", *_listed(comparison.only_first_right)], ["second", *_listed(comparison.only_second_right)]]
    sections = [
        Section(heading="Word error rates", blocks=[Table(header=header, rows=rows), _verdict(comparison)]),
        Section(
            heading="Right in one alone",
            blocks=[Table(header=["right", "utterances", "ids"], rows=right)],
        ),
        Section(heading="Where they differ most", blocks=_aligned(comparison)),
    ]
    return to_markdown("Comparison of two systems", sections)


def _listed(ids: Sequence[str]) -> tuple[str, str]:
    """How many, and the first of them."""
    return str(len(ids)), ", ".join(ids[:SHOWN]) + (", …" if len(ids) > SHOWN else "")


def _aligned(comparison: Comparison) -> list[str | Table]:
    different = comparison.most_different
    if not different:
        return ["Both make as many errors in every utterance."]
    rows = [
        [mine.id if row is mine else "", name, str(row.word_errors), Alignment.of(row.reference, row.hypothesis)]
        for mine, theirs in different[:SHOWN]
        for name, row in (("first", mine), ("second", theirs))
    ]
    shown = f"{min(SHOWN, len(different))} of the {len(different)} utterances with another number of errors. {MARKS}"
    return [shown, Table(header=["id", "system", "errors", "alignment"], rows=rows)]


def _content(comparison: Comparison) -> dict[str, object]:
    """What `comparison.json` holds; rates are fractions, `None` where the references have no word."""
    difference = comparison.difference
    return {
        "utterances": len(comparison.pairs),
        "words": comparison.words,
        "block": str(comparison.block),
        "first": _score_content(comparison.first),
        "second": _score_content(comparison.second),
        "difference": None if difference is None else difference.difference,
        "interval": None if difference is None else list(difference.interval),
        "probability_of_improvement": None if difference is None else difference.probability_of_improvement,
        "better": comparison.better,
        "worse": comparison.worse,
        "equal": comparison.equal,
        "only_first_right": list(comparison.only_first_right),
        "only_second_right": list(comparison.only_second_right),
    }


def _score_content(score: SystemScore) -> dict[str, object]:
    return {
        "hypotheses": score.path,
        "wer": score.wer,
        "interval": None if score.interval is None else list(score.interval),
        "substitutions": score.substitutions,
        "deletions": score.deletions,
        "insertions": score.insertions,
        "sentence_errors": score.sentence_errors,
    }
