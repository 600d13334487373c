"""One normaliser: what it joins, what it keeps, and that it has nothing left to do the second time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.text.normalisation import normalise


@pytest.mark.parametrize("text", ["a\tb", "a\u00a0b", " a  b\r\n", "a\u3000b", "A B", "a \u200bb", "\ufeffa b"])
def test_white_space_case_and_invisible_characters_do_not_count(text: str) -> None:
    # jitsi/jiwer#129: a tab or a no-break space glued words together
    assert normalise(text) == "a b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\u00bd", "1\u20442"),
        ("\u2026", "..."),
        ("\uff12\uff13", "23"),
        ("\ufb01t", "fit"),
        ("DON\u2019T!", "don't!"),
        ("", ""),
    ],
)
def test_compatibility_forms_become_plain_and_punctuation_stays(text: str, expected: str) -> None:
    assert normalise(text) == expected


def test_composed_and_decomposed_letters_are_one() -> None:
    assert normalise("e\u0301") == normalise("\u00c9") == "\u00e9"


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)
