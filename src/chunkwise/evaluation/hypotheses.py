"""`hypotheses.jsonl` read back: the scored utterances of an evaluation, or of two over the same utterances."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chunkwise.evaluation.tally import ScoredUtterance
from chunkwise.evaluation.typed_json import parse

FILE = "hypotheses.jsonl"
_NAMED = 5  # ids in an error message
_SHOWN = 80  # characters of a transcript in an error message


def hypotheses_file(path: Path) -> Path:
    """The file itself, or the one in an evaluation's folder."""
    if path.is_dir():
        path /= FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; name a {FILE}, or the folder of an evaluation that holds one")
    return path


def read_hypotheses(path: Path) -> list[ScoredUtterance]:
    """The utterances, sorted by id, of a file or of the evaluation folder that holds it; blank lines are passed over.

    Raises `ValueError` with the file and the line for what is no scored utterance, and for an id that comes twice.
    """
    file = hypotheses_file(path)
    try:
        lines = file.read_bytes().decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not UTF-8 text; evaluate again") from None
    numbers: dict[str, int] = {}
    utterances = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        utterance = _read_line(line, f"{file}: line {number}")
        if utterance.id in numbers:
            both = f"lines {numbers[utterance.id]} and {number}"
            raise ValueError(f"{file}: {both} both hold the utterance {utterance.id}; keep one of them")
        numbers[utterance.id] = number
        utterances.append(utterance)
    if not utterances:
        raise ValueError(f"{file} holds no utterance; evaluate again")
    return sorted(utterances, key=lambda utterance: utterance.id)


def read_pair(first: Path, second: Path) -> tuple[list[ScoredUtterance], list[ScoredUtterance]]:
    """The utterances of two evaluations of the same set, in the same order.

    A speaker whom only one of them names is known in both. Raises `ValueError` where ids, transcripts or speakers
    differ.
    """
    mine, theirs = read_hypotheses(first), read_hypotheses(second)
    files = hypotheses_file(first), hypotheses_file(second)
    _require_same_ids(files, mine, theirs)
    for one, other in zip(mine, theirs, strict=True):
        for key in ("reference", "speaker"):
            told = getattr(one, key), getattr(other, key)
            if told[0] != told[1] and None not in told:
                raise ValueError(
                    f"the {key} of {one.id} is {_short(told[0])} in {files[0]} and {_short(told[1])} in {files[1]}; "
                    "compare evaluations of the same transcripts"
                )
    return _named(mine, theirs), _named(theirs, mine)


def _read_line(line: str, where: str) -> ScoredUtterance:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON ({error}); evaluate again") from None
    if not isinstance(row, dict):
        raise ValueError(f"{where} is no scored utterance but {_short(line)}; evaluate again")
    try:
        utterance = parse(ScoredUtterance, row)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    for key in ("substitutions", "deletions", "insertions"):
        if (count := getattr(utterance, key)) < 0:
            raise ValueError(f"{where}: {key}={count} must be 0 or more; evaluate again")
    return utterance


def _require_same_ids(
    files: tuple[Path, Path], mine: Sequence[ScoredUtterance], theirs: Sequence[ScoredUtterance]
) -> None:
    here, there = ({utterance.id for utterance in rows} for rows in (mine, theirs))
    if here == there:
        return
    missing = zip(files, (there - here, here - there), strict=True)
    lacks = [f"{file} lacks {_some(ids)}" for file, ids in missing if ids]
    raise ValueError(f"the utterances differ: {' and '.join(lacks)}; compare evaluations of the same split")


def _some(ids: set[str]) -> str:
    named = ", ".join(sorted(ids)[:_NAMED])
    return f"{len(ids)} ({named}{', …' if len(ids) > _NAMED else ''})"


def _named(rows: Sequence[ScoredUtterance], others: Sequence[ScoredUtterance]) -> list[ScoredUtterance]:
    """The rows, with the others' speaker where they name none."""
    pairs = zip(rows, others, strict=True)
    return [replace(row, speaker=other.speaker) if row.speaker is None else row for row, other in pairs]


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
