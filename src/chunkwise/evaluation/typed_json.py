"""JSON files with a schema: frozen dataclasses in, frozen dataclasses out, written whole or not at all."""

import json
import os
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_json(value: object) -> str:
    """JSON for people and for byte comparison: indented, the keys as given, never NaN."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, texts in UTF-8, so that a reader sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_json(kind: type[T], path: Path) -> T:
    """The dataclass that a file holds; whatever is wrong with it is said with the file's name and the key."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileNotFoundError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    try:
        return parse(kind, value)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def parse(kind: type[T], value: object, where: str = "") -> T:
    """A dataclass from JSON's plain types: every key known and of its type; one with a default may be missing.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Corpus:
    ...     name: str
    ...     train_hours: float
    >>> parse(Corpus, {"name": "yesno", "train_hours": 1})
    Corpus(name='yesno', train_hours=1.0)
    >>> parse(Corpus, {"name": "yesno", "train_hours": "1"})
    Traceback (most recent call last):
    ...
    ValueError: train_hours='1' must be a number
    """
    if not isinstance(value, dict):
        raise ValueError(f"{where or 'the file'} must be an object with keys, not {value!r}")
    hints = get_type_hints(kind)
    prefix = f"{where}." if where else ""
    if unknown := sorted(value.keys() - hints.keys()):
        raise ValueError(f"{prefix}{unknown[0]} is no known key; the keys are {', '.join(hints)}")
    declared: Any = kind  # pyright does not know that it is a dataclass
    needed = [f.name for f in fields(declared) if f.default is MISSING and f.default_factory is MISSING]
    if missing := [name for name in needed if name not in value]:
        raise ValueError(f"{prefix}{missing[0]} is missing")
    return kind(**{name: _convert(hints[name], item, f"{prefix}{name}") for name, item in value.items()})


def _convert(hint: Any, value: object, where: str) -> object:
    if is_dataclass(hint) and isinstance(hint, type):
        return parse(hint, value, where)
    if isinstance(hint, UnionType) and any(get_origin(part) is tuple for part in get_args(hint)):
        [hint] = [part for part in get_args(hint) if part is not type(None)]
        return None if value is None else _convert(hint, value, where)
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if not isinstance(value, list):
            raise ValueError(f"{where}={value!r} must be a list")
        if parts[-1] is not Ellipsis and len(parts) != len(value):
            raise ValueError(f"{where}={value!r} must hold {len(parts)} values")
        return tuple(_convert(parts[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        if value not in list(hint):
            raise ValueError(f"{where}={value!r} must be one of {', '.join(hint)}")
        return hint(value)
    allowed: tuple[Any, ...] = get_args(hint) if isinstance(hint, UnionType) else (get_origin(hint) or hint,)
    return _plain(allowed, value, where)


_NAMES = {type(None): "null", bool: "true or false", int: "an integer", float: "a number", str: "a text"}


def _plain(allowed: tuple[type, ...], value: object, where: str) -> object:
    """A text, number, truth value, null or object; an integer may stand for a float, a truth value for neither."""
    if float in allowed and type(value) is int:
        return float(value)
    if type(value) not in allowed:
        names = " or ".join(_NAMES.get(kind, "an object") for kind in allowed)
        raise ValueError(f"{where}={value!r} must be {names}")
    return value
