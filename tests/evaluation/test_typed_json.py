"""Files are written whole; what they hold is of the declared types or is refused by name."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from chunkwise.evaluation.typed_json import parse, read_json, to_json, write_atomically


class Colour(StrEnum):
    red = "red"


@dataclass(frozen=True)
class Inner:
    rate: float | None


@dataclass(frozen=True)
class Rate:
    between: tuple[float, float] | None = None


@dataclass(frozen=True)
class Outer:
    name: str
    colour: Colour
    inner: tuple[Inner, ...]
    config: dict[str, Any]


VALUE = {"name": "é", "colour": "red", "inner": [{"rate": 1}, {"rate": None}], "config": {"a": [1]}}


def test_nested_values_become_dataclasses() -> None:
    assert parse(Outer, VALUE) == Outer("é", Colour.red, (Inner(1.0), Inner(None)), {"a": [1]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inner": [{"rate": True}]}, r"inner\[0\].rate=True must be a number or null"),
        ({"inner": [{}]}, r"inner\[0\].rate is missing"),
        ({"inner": [3]}, r"inner\[0\] must be an object"),
        ({"colour": ["red"]}, "colour="),
        ({"config": []}, r"config=\[\] must be an object"),
    ],
)
def test_a_wrong_value_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(Outer, {**VALUE, **change})


def test_a_pair_that_may_be_missing() -> None:
    assert parse(Rate, {"between": None}) == parse(Rate, {}) == Rate(None)
    assert parse(Rate, {"between": [0, 1.5]}) == Rate((0.0, 1.5))
    for wrong, message in (([1.0], "must hold 2 values"), ([1.0, "2"], r"between\[1\]='2'"), (1.0, "must be a list")):
        with pytest.raises(ValueError, match=message):
            parse(Rate, {"between": wrong})


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(ValueError, match=r"x\.json is not UTF-8"):
        read_json(Outer, path)


def test_writing_replaces_the_whole_file_in_utf8(tmp_path: Path) -> None:
    path = tmp_path / "音 é[x],=#" / "x.json"
    write_atomically(path, "long old text")
    write_atomically(path, to_json({"b": "鬱", "a": 1}))
    assert path.read_bytes().decode("utf-8") == '{\n  "b": "鬱",\n  "a": 1\n}\n'
    assert [file.name for file in path.parent.iterdir()] == ["x.json"]


def test_json_never_holds_nan() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"wer": float("nan")})
