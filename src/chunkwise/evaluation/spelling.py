"""Transcripts that a model cannot write, whatever it hears, because its tokenizer lacks their characters or words."""

from collections.abc import Iterable
from dataclasses import dataclass

from chunkwise.evaluation.tally import ScoredUtterance
from chunkwise.evaluation.wer import align_words
from chunkwise.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Misspelling:
    """A transcript that does not come back from encoding and decoding."""

    id: str
    reference: str
    spelled: str  # what comes back


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """Which transcripts the tokenizer cannot spell, and how many of all words are out of its vocabulary."""

    words: int
    oov_words: int
    misspellings: tuple[Misspelling, ...]

    @property
    def oov_rate(self) -> float | None:
        """Words out of the vocabulary per word; `None` without a word."""
        return self.oov_words / self.words if self.words else None


def check_spelling(utterances: Iterable[ScoredUtterance], tokenizer: Tokenizer) -> Spelling:
    """Encode and decode every transcript; those that change are kept in the order of the utterances."""
    words, oov_words, misspellings = 0, 0, list[Misspelling]()
    for row in utterances:
        words += len(row.reference.split())
        spelled = tokenizer.decode(tokenizer.encode(row.reference))
        if spelled != row.reference:
            pairs = align_words(row.reference, spelled)
            oov_words += sum(spoken is not None and spoken != came_back for spoken, came_back in pairs)
            misspellings.append(Misspelling(id=row.id, reference=row.reference, spelled=spelled))
    return Spelling(words=words, oov_words=oov_words, misspellings=tuple(misspellings))
