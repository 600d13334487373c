"""Ids never clash with the blank, text survives, and impossible vocabularies name the range."""

import pickle
import re
from pathlib import Path

import pytest
import sentencepiece

from chunkwise.text.tokenizer import Tokenizer, TokenizerConfig, TokenizerKind, train_tokenizer
from chunkwise.typing import BLANK

LINES = ["hello world the cat", "a dog ran quick", "jumped over big fox"] * 5


def trained(
    path: Path, kind: TokenizerKind = TokenizerKind.bpe, vocab_size: int | None = 40, byte_fallback: bool = False
) -> Tokenizer:
    config = TokenizerConfig(kind=kind, vocab_size=vocab_size, byte_fallback=byte_fallback)
    return train_tokenizer(LINES, config, path / "folder" / "tokenizer.model")


@pytest.mark.parametrize(
    ("kind", "vocab_size"),
    [(TokenizerKind.bpe, 40), (TokenizerKind.unigram, 27), (TokenizerKind.char, None), (TokenizerKind.word, None)],
)
def test_text_survives_and_blank_is_never_a_label(tmp_path: Path, kind: TokenizerKind, vocab_size: int | None) -> None:
    # k2-fsa/sherpa-onnx#299: unknown pieces encoded as 0, which is the blank
    tokenizer = trained(tmp_path, kind, vocab_size)
    assert tokenizer.round_trip_failures(LINES) == []
    for text in [*LINES, "hello Q", "", "<blk> <unk> <s>"]:
        ids = tokenizer.encode(text)
        assert BLANK not in ids
        assert all(0 < index < tokenizer.vocab_size for index in ids)
    assert tokenizer.decode(tokenizer.encode("hello Q")) == "hello \u2047"
    assert tokenizer.decode([BLANK, *tokenizer.encode("hello"), BLANK]) == "hello"
    assert tokenizer.round_trip_failures(["hello Q", "hello Q", "a cat" if kind != TokenizerKind.word else "cat"]) == [
        "hello Q"
    ]


def test_an_unknown_character_is_one_wrong_word(tmp_path: Path) -> None:
    # speechbrain/speechbrain#2863
    tokenizer = trained(tmp_path)
    assert tokenizer.decode(tokenizer.encode("the heQlo cat")) == "the he\u2047lo cat"


@pytest.mark.parametrize(
    ("kind", "vocab_size", "allowed"),
    [
        (TokenizerKind.bpe, 1000, "between 26 and 111"),
        (TokenizerKind.unigram, 1000, "between 26 and 28"),
        (TokenizerKind.bpe, 10, "between 26 and 111"),
        (TokenizerKind.char, 10, "at least 26"),
    ],
)
def test_an_impossible_vocabulary_names_the_range(
    tmp_path: Path, kind: TokenizerKind, vocab_size: int, allowed: str
) -> None:
    # google/sentencepiece#605
    with pytest.raises(ValueError, match=f"tokenizer.vocab_size={vocab_size} must be {allowed}"):
        trained(tmp_path, kind, vocab_size)
    for size in map(int, re.findall(r"\d+", allowed)):
        assert trained(tmp_path, kind, size).vocab_size == size


def test_characters_and_words_may_be_fewer_than_allowed(tmp_path: Path) -> None:
    assert trained(tmp_path, TokenizerKind.char, 500).vocab_size == 26
    assert trained(tmp_path, TokenizerKind.word, 500).vocab_size == 14
    assert trained(tmp_path, TokenizerKind.word, 9).vocab_size == 9


def test_half_a_character_is_held_back(tmp_path: Path) -> None:
    # google/sentencepiece#906: raw bytes and replacement characters in partial results
    tokenizer = trained(tmp_path, vocab_size=300, byte_fallback=True)
    ids = tokenizer.encode("hello \u9b31")
    partials = [tokenizer.decode_partial(ids[:count]) for count in range(len(ids) + 1)]
    assert partials[-4:] == ["hello", "hello", "hello", "hello \u9b31"]
    assert tokenizer.decode(ids) == "hello \u9b31"
    assert tokenizer.decode(ids[:-1]) == "hello \u2047"  # one wrong character, no crash
    assert tokenizer.decode([*ids[:-1], *tokenizer.encode("cat")]) == "hello \u2047 cat"


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_partials_grow_at_their_end_only(tmp_path: Path, byte_fallback: bool) -> None:
    # speechbrain/speechbrain#2377: word borders lost between chunks
    tokenizer = trained(tmp_path, vocab_size=300 if byte_fallback else 40, byte_fallback=byte_fallback)
    for text in ("hello world the", "a \u9b31\u9b31 Q cat", "QQ  \u00e9"):
        ids = tokenizer.encode(text)
        partials = [tokenizer.decode_partial(ids[:count]) for count in range(len(ids) + 1)]
        for shorter, longer in zip(partials, partials[1:], strict=False):
            assert longer.startswith(shorter)
        assert tokenizer.decode(ids).startswith(partials[-1])


def test_the_model_changes_nothing_by_itself(tmp_path: Path) -> None:
    # google/sentencepiece#766: half becomes 1/2, ellipsis three dots
    lines = ["\u00bd of it\u2026", "\uff12\uff13 \ufb01t"]
    config = TokenizerConfig(kind=TokenizerKind.char, vocab_size=None)
    assert train_tokenizer(lines, config, tmp_path / "t.model").round_trip_failures(lines) == []


def test_it_can_be_stored_and_sent(tmp_path: Path) -> None:
    tokenizer = trained(tmp_path)
    ids = tokenizer.encode("hello world")
    path = tmp_path / "folder" / "tokenizer.model"
    assert [file.name for file in path.parent.iterdir()] == ["tokenizer.model"]
    for copy in (
        Tokenizer.load(path),
        Tokenizer.from_bytes(tokenizer.to_bytes()),
        pickle.loads(pickle.dumps(tokenizer)),
    ):
        assert copy.encode("hello world") == ids
    assert trained(tmp_path).to_bytes() == tokenizer.to_bytes()


def test_a_foreign_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.model"
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(  # pyright: ignore[reportAttributeAccessIssue]
            sentence_iterator=iter(LINES), model_writer=file, vocab_size=40, model_type="bpe", minloglevel=3
        )
    with pytest.raises(ValueError, match="id 0 is '<unk>', not the blank"):
        Tokenizer.load(path)
    path.write_text("hello")
    with pytest.raises(ValueError, match=r"foreign.model is not a SentencePiece model"):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"vocab_size": None}, "tokenizer.vocab_size=null"),
        ({"vocab_size": 2}, "tokenizer.vocab_size=2"),
        ({"kind": TokenizerKind.char, "byte_fallback": True}, "tokenizer.byte_fallback=true"),
    ],
)
def test_impossible_values_name_their_key(config: dict[str, bool], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        TokenizerConfig(**config)  # pyright: ignore[reportArgumentType]


def test_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one transcript"):
        train_tokenizer(["", ""], TokenizerConfig(), tmp_path / "t.model")
