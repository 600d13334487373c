"""Transcripts as ids: a SentencePiece model whose id 0 is the blank and never stands for text."""

import codecs
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import sentencepiece

from chunkwise.typing import BLANK

BLANK_PIECE = "<blk>"
UNKNOWN = 1
UNKNOWN_TEXT = "\u2047"
"""What an unknown piece, or bytes that are no character, look like in a hypothesis: `⁇`."""

SPACE = "\u2581"
"""SentencePiece's own mark for a space."""

PROBE_CHARACTERS = 1_000_000
"""Up to this much text, the largest possible vocabulary is found by trying."""


class TokenizerKind(StrEnum):
    """SentencePiece's model types."""

    unigram = "unigram"
    bpe = "bpe"
    char = "char"
    word = "word"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerConfig:
    """How transcripts become ids; 0 is the blank, the unknown piece stays visible."""

    kind: TokenizerKind = TokenizerKind.unigram
    vocab_size: int | None = 500  # output units, blank included; null: as many as the corpus has (char, word)
    byte_fallback: bool = False

    def __post_init__(self) -> None:
        if self.vocab_size is None and self.has_pieces:
            raise ValueError(f"tokenizer.vocab_size=null needs kind char or word, not {self.kind}; try 500")
        if self.vocab_size is not None and self.vocab_size < 3:
            raise ValueError(f"tokenizer.vocab_size={self.vocab_size} must be at least 3; try 500")
        if self.byte_fallback and not self.has_pieces:
            raise ValueError(f"tokenizer.byte_fallback=true needs kind unigram or bpe, not {self.kind}; try false")

    @property
    def has_pieces(self) -> bool:
        """Whether the units lie between characters and words, so that their number is a choice."""
        return self.kind in (TokenizerKind.unigram, TokenizerKind.bpe)


class Tokenizer:
    """Text to ids and back.

    Ids run from 0, the blank (no text), over 1, the unknown piece (shown as `⁇`), to `vocab_size - 1`. Text is
    expected as `normalise` leaves it; the model itself changes nothing.

    Reference: Kudo and Richardson 2018, "SentencePiece", arXiv:1808.06226.
    """

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        blank = self._processor.id_to_piece(BLANK)
        if blank != BLANK_PIECE or not self._processor.is_control(BLANK) or self._processor.unk_id() != UNKNOWN:
            raise ValueError(f"the tokenizer's id {BLANK} is {blank!r}, not the blank; train it with train_tokenizer()")
        pieces = [self._processor.id_to_piece(index) for index in range(self.vocab_size)]
        self._bytes = {i: bytes([int(p[1:-1], 16)]) for i, p in enumerate(pieces) if self._processor.is_byte(i)}
        self._texts = [piece.replace(SPACE, " ") for piece in pieces]
        self._texts[BLANK] = ""
        # Where units are whole words there is no piece for the space alone.
        self._texts[UNKNOWN] = UNKNOWN_TEXT if SPACE in pieces else f" {UNKNOWN_TEXT} "

    @classmethod
    def from_bytes(cls, model: bytes) -> "Tokenizer":
        """The tokenizer that `to_bytes` wrote."""
        return cls(model)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """The tokenizer kept in a file."""
        try:
            return cls(Path(path).read_bytes())
        except RuntimeError as error:
            raise ValueError(f"{os.fspath(path)} is not a SentencePiece model; train the tokenizer again") from error

    def to_bytes(self) -> bytes:
        """The whole model, for checkpoints and files."""
        return self._model

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[bytes]]:
        return Tokenizer, (self._model,)

    @property
    def vocab_size(self) -> int:
        """How many ids there are, the blank included."""
        return self._processor.get_piece_size()

    def encode(self, text: str) -> list[int]:
        """The ids of normalised text; the blank is never among them."""
        return self._processor.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a finished hypothesis: blanks vanish, unknown pieces and broken bytes show as `⁇`."""
        return _tidy("".join(self._parts(ids, final=True)))

    def decode_partial(self, ids: Sequence[int]) -> str:
        """The text of a growing hypothesis: more ids only ever add to its end, so half a character is held back."""
        return _tidy("".join(self._parts(ids, final=False)))

    def round_trip_failures(self, texts: Iterable[str]) -> list[str]:
        """The texts, each once, that do not come back from encoding and decoding."""
        return [text for text in dict.fromkeys(texts) if self.decode(self.encode(text)) != text]

    def _parts(self, ids: Iterable[int], final: bool) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for index in ids:
            if index in self._bytes:
                yield decoder.decode(self._bytes[index])
            elif index != BLANK:
                yield decoder.decode(b"", final=True)
                decoder.reset()
                yield self._texts[index]
        yield decoder.decode(b"", final=final)


def _tidy(text: str) -> str:
    return re.sub("\ufffd+", UNKNOWN_TEXT, " ".join(text.split()))


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig, path: Path) -> Tokenizer:
    """A tokenizer for these normalised texts, also written to `path`.

    The same texts always give the same model. A vocabulary that the texts cannot fill is a ValueError with the range.
    """
    texts = [text for text in texts if text]
    if not texts:
        raise ValueError("the tokenizer needs at least one transcript that is not empty; check the training split")
    tokenizer = Tokenizer(_train(texts, config))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    partial.write_bytes(tokenizer.to_bytes())
    partial.replace(path)
    return tokenizer


def _train(texts: list[str], config: TokenizerConfig) -> bytes:
    if config.has_pieces:
        try:
            return _sentencepiece(texts, config, vocab_size=config.vocab_size)
        except RuntimeError as error:
            raise _impossible_vocabulary(texts, config, error) from error
    model = _sentencepiece(texts, config, use_all_vocab=True)
    units = Tokenizer(model).vocab_size
    if config.vocab_size is None or config.vocab_size >= units:
        return model
    if config.kind is TokenizerKind.char:
        raise ValueError(f"tokenizer.vocab_size={config.vocab_size} must be at least {units} for kind char; try null")
    return _sentencepiece(texts, config, vocab_size=config.vocab_size)


def _sentencepiece(texts: list[str], config: TokenizerConfig, **size: Any) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(  # pyright: ignore[reportAttributeAccessIssue]
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type=str(config.kind),
        byte_fallback=config.byte_fallback,
        character_coverage=1.0,
        normalization_rule_name="identity",
        max_sentence_length=1 << 24,  # bytes; longer lines would be dropped in silence
        pad_id=BLANK,
        pad_piece=BLANK_PIECE,
        unk_id=UNKNOWN,
        bos_id=-1,
        eos_id=-1,
        num_threads=1,  # more of them can change the pieces from run to run
        minloglevel=3,
        **size,
    )
    return model.getvalue()


def _impossible_vocabulary(texts: list[str], config: TokenizerConfig, error: RuntimeError) -> Exception:
    """The error that names the vocabularies which these texts allow, or the unrelated error itself."""
    if not _limit(r"<= (\d+)", str(error)) and not _limit(r"vs (\d+)", str(error)):
        return error
    smallest = _probe(texts, config, 3, r"vs (\d+)")
    # Trying a huge vocabulary takes long on much text; SentencePiece has named the largest if ours was too large.
    small_corpus = sum(map(len, texts)) <= PROBE_CHARACTERS
    largest = _limit(r"<= (\d+)", str(error)) or (_probe(texts, config, 1 << 20, r"<= (\d+)") if small_corpus else None)
    allowed = f"at least {smallest}" if largest is None else f"between {smallest} and {largest}"
    remedy = f"try {largest or 500}" if largest is None or smallest is None or largest >= smallest else "try kind=char"
    return ValueError(
        f"tokenizer.vocab_size={config.vocab_size} must be {allowed} for kind {config.kind} on this corpus; {remedy}"
    )


def _probe(texts: list[str], config: TokenizerConfig, vocab_size: int, limit: str) -> int | None:
    try:
        _sentencepiece(texts, config, vocab_size=vocab_size)
    except RuntimeError as error:
        return _limit(limit, str(error))
    return None


def _limit(pattern: str, message: str) -> int | None:
    found = re.search(pattern, message)
    return int(found.group(1)) if found else None
