"""Error rates: integer counts per utterance, added up, divided once at the end.

Reference and hypothesis pass through the one normaliser of the project
(`chunkwise.text.normalisation.normalise`) here and nowhere else on the way to a rate. Words are what spaces
separate; characters are the code points of the normalised text, spaces included.
"""

from dataclasses import dataclass, fields

from kaldialign import align, edit_distance

from chunkwise.text.normalisation import normalise

WordPair = tuple[str | None, str | None]
"""A reference word and the hypothesis word against it; `None` stands for an insertion or a deletion."""


@dataclass(frozen=True, slots=True)
class ErrorCounts:
    """The errors of any number of utterances, as integers that add up.

    A rate over an empty reference is undefined and reads `None`, whatever the hypothesis says.

    >>> right, wrong = count_errors("one two three", "one two three"), count_errors("x", "y z")
    >>> (right + wrong).wer, wrong.wer, ErrorCounts().wer
    (0.5, 2.0, None)
    """

    utterances: int = 0
    words: int = 0  # in the references
    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    sentence_errors: int = 0  # utterances with at least one word wrong
    characters: int = 0  # in the references, spaces included
    character_errors: int = 0

    def __add__(self, other: "ErrorCounts") -> "ErrorCounts":
        """The counts of both sets of utterances together."""
        return ErrorCounts(*(getattr(self, name) + getattr(other, name) for name in _NAMES))  # astuple copies deeply

    @property
    def word_errors(self) -> int:
        """Substitutions, deletions and insertions together."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def wer(self) -> float | None:
        """The corpus word error rate, a fraction; `None` where the references have no word."""
        return self.word_errors / self.words if self.words else None

    @property
    def cer(self) -> float | None:
        """The corpus character error rate, a fraction; `None` where the references have no character."""
        return self.character_errors / self.characters if self.characters else None


_NAMES = tuple(field.name for field in fields(ErrorCounts))


def count_errors(reference: str, hypothesis: str) -> ErrorCounts:
    r"""The errors of one utterance by Levenshtein alignment of words, and of characters.

    >>> counts = count_errors("the cat sat on the mat", "The cat\tsit on the")
    >>> counts.substitutions, counts.deletions, counts.insertions, counts.words
    (1, 1, 0, 6)
    >>> counts.character_errors, counts.characters
    (5, 22)
    """
    reference, hypothesis = normalise(reference), normalise(hypothesis)
    words = edit_distance(reference.split(), hypothesis.split())
    characters = edit_distance(reference, hypothesis)
    return ErrorCounts(
        utterances=1,
        words=int(words["ref_len"]),
        substitutions=int(words["sub"]),
        deletions=int(words["del"]),
        insertions=int(words["ins"]),
        sentence_errors=int(words["total"] > 0),
        characters=int(characters["ref_len"]),
        character_errors=int(characters["total"]),
    )


def align_words(reference: str, hypothesis: str) -> list[WordPair]:
    """The alignment that `count_errors` counts, word by word.

    >>> align_words("one two three", "one too three four")
    [('one', 'one'), ('two', 'too'), ('three', 'three'), (None, 'four')]
    """
    nothing = ""  # no word is empty, so this cannot collide with one
    pairs = align(normalise(reference).split(), normalise(hypothesis).split(), nothing)
    return [(spoken or None, heard or None) for spoken, heard in pairs]


def show_alignment(pairs: list[WordPair]) -> str:
    """An alignment on one line: `[spoken→heard]`, `[−deleted]`, `[+inserted]`.

    >>> show_alignment(align_words("one two three", "one too"))
    'one [two→too] [−three]'
    """
    return " ".join(_show_pair(spoken, heard) for spoken, heard in pairs)


def _show_pair(spoken: str | None, heard: str | None) -> str:
    if spoken is None:
        return f"[+{heard}]"
    if heard is None:
        return f"[−{spoken}]"
    return spoken if spoken == heard else f"[{spoken}→{heard}]"
