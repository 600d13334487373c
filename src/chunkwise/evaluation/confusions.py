"""Which words are taken for which: the most frequent substitutions, deletions and insertions of an evaluation."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from chunkwise.evaluation.tally import ScoredUtterance
from chunkwise.evaluation.wer import WordPair, align_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """A word, what was heard for it, and how often; `spoken=None` is an insertion, `heard=None` a deletion."""

    spoken: str | None
    heard: str | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusions:
    """The most frequent of each kind: the highest count first, then in the order of the words' code points."""

    substitutions: tuple[Confusion, ...]
    deletions: tuple[Confusion, ...]
    insertions: tuple[Confusion, ...]


def most_frequent(utterances: Iterable[ScoredUtterance], top: int = 10) -> Confusions:
    """The confusions of a set of utterances, at most `top` of each kind; their order changes nothing.

    >>> found = most_frequent([ScoredUtterance("a", "one two", "won two oh", 1, 0, 1)])
    >>> found.substitutions, found.deletions
    ((Confusion(spoken='one', heard='won', count=1),), ())
    """
    if top < 1:
        raise ValueError(f"top={top} must be 1 or more; try 10")
    counts = Counter(
        (spoken, heard)
        for utterance in utterances
        if utterance.word_errors
        for spoken, heard in align_words(utterance.reference, utterance.hypothesis)
        if spoken != heard
    )
    return Confusions(
        substitutions=_first(top, {pair: count for pair, count in counts.items() if None not in pair}),
        deletions=_first(top, {pair: count for pair, count in counts.items() if pair[1] is None}),
        insertions=_first(top, {pair: count for pair, count in counts.items() if pair[0] is None}),
    )


def _first(top: int, counts: dict[WordPair, int]) -> tuple[Confusion, ...]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0][0] or "", item[0][1] or ""))
    return tuple(Confusion(spoken=spoken, heard=heard, count=count) for (spoken, heard), count in ordered[:top])
