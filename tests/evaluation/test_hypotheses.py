"""Hypotheses come back as they were written; whatever is wrong with a file is said with its name and line."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from chunkwise.evaluation.hypotheses import read_hypotheses, read_pair
from chunkwise.evaluation.results import write_evaluation
from chunkwise.evaluation.tally import Evaluation, ScoredUtterance
from chunkwise.evaluation.wer import ErrorCounts

ROWS = (
    ScoredUtterance("a", "one two", "one two", 0, 0, 0, "s"),
    ScoredUtterance("b", "音 é\u2028x", "", 0, 3, 0, "t"),
    ScoredUtterance("c", "", "x", 0, 0, 1),
)


def write(file: Path, *rows: ScoredUtterance) -> Path:
    file.write_text("".join(row.to_line() + "\n" for row in rows), encoding="utf-8")
    return file


def test_what_an_evaluation_wrote_is_read_from_file_and_folder(tmp_path: Path) -> None:
    folder = tmp_path / "音 é(1)[x],= #"
    write_evaluation(
        folder, "digits test, full", Evaluation(counts=ErrorCounts(), audio_s=1.0, compute_s=1.0, utterances=ROWS)
    )
    assert tuple(read_hypotheses(folder)) == ROWS
    assert tuple(read_hypotheses(folder / "hypotheses.jsonl")) == ROWS


def test_lines_come_in_any_order_and_may_be_blank(tmp_path: Path) -> None:
    file = write(tmp_path / "h.jsonl", *random.Random(1).sample(ROWS, 3))
    file.write_text("\n" + file.read_text(encoding="utf-8").replace("\n", "\r\n"), encoding="utf-8", newline="")
    assert tuple(read_hypotheses(file)) == ROWS


def test_lines_without_a_speaker_are_read(tmp_path: Path) -> None:
    file = tmp_path / "h.jsonl"
    row = json.loads(ROWS[0].to_line())
    del row["speaker"]
    file.write_text(json.dumps(row), encoding="utf-8")
    assert read_hypotheses(file) == [replace(ROWS[0], speaker=None)]


@pytest.mark.parametrize("name", ["", "h.jsonl"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match=rf"{name or 'hypotheses.jsonl'} is missing; name a hypotheses\.jsonl"):
        read_hypotheses(tmp_path / name)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"id": "z", ', r"line 3 is not JSON"),
        ("[1]", r"line 3 is no scored utterance but '\[1\]'"),
        ('{"id": "z"}', r"line 3: reference is missing"),
        (replace(ROWS[0], id="z").to_line().replace("0", '"0"', 1), r"line 3: substitutions='0' must be an integer"),
        (replace(ROWS[0], id="z", insertions=-1).to_line(), r"line 3: insertions=-1 must be 0 or more"),
        (ROWS[0].to_line(), r"lines 1 and 3 both hold the utterance a;"),
    ],
)
def test_a_faulty_line_is_named(tmp_path: Path, line: str, fault: str) -> None:
    file = write(tmp_path / "h.jsonl", *ROWS[:2])
    file.write_text(file.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"h\.jsonl: {fault}"):
        read_hypotheses(file)


@pytest.mark.parametrize(("content", "fault"), [(b"\n \n", "holds no utterance"), (b"\xff", "is not UTF-8 text")])
def test_a_file_without_utterances_is_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    file = tmp_path / "h.jsonl"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"h\.jsonl {fault}"):
        read_hypotheses(file)


def test_pairs_stand_in_one_order_and_know_each_others_speakers(tmp_path: Path) -> None:
    heard = [replace(row, hypothesis="y", speaker=None) for row in ROWS]
    mine, theirs = read_pair(write(tmp_path / "a", *ROWS[::-1]), write(tmp_path / "b", *heard))
    assert [row.id for row in mine] == [row.id for row in theirs] == ["a", "b", "c"]
    assert [row.speaker for row in mine] == [row.speaker for row in theirs] == ["s", "t", None]
    assert [row.hypothesis for row in theirs] == ["y", "y", "y"]


def test_differing_ids_are_counted_and_named(tmp_path: Path) -> None:
    many = [replace(ROWS[0], id=f"u{index}") for index in range(7)]
    first, second = write(tmp_path / "first", ROWS[0], *many), write(tmp_path / "second", *ROWS[:2])
    both = r"first lacks 1 \(b\) and .*second lacks 7 \(u0, u1, u2, u3, u4, …\); compare"
    with pytest.raises(ValueError, match=both):
        read_pair(first, second)
    with pytest.raises(ValueError, match=r"the utterances differ: \S*second lacks 1 \(b\);"):
        read_pair(write(first, *ROWS), write(second, ROWS[0], ROWS[2]))


@pytest.mark.parametrize("key", ["reference", "speaker"])
def test_a_differing_transcript_or_speaker_is_named(tmp_path: Path, key: str) -> None:
    other = replace(ROWS[0], **{key: "x" * 200})
    first, second = write(tmp_path / "first", ROWS[0]), write(tmp_path / "second", other)
    fault = rf"the {key} of a is '{getattr(ROWS[0], key)}' in \S*first and 'x{{80}}…' in \S*second; compare"
    with pytest.raises(ValueError, match=fault):
        read_pair(first, second)
