"""Comparisons of systems whose difference is known, from files in any order."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from chunkwise.evaluation.comparison import compare, show_comparison, write_comparison
from chunkwise.evaluation.significance import Block
from chunkwise.evaluation.tally import ScoredUtterance
from chunkwise.evaluation.wer import count_errors


def scored(id: str, reference: str, hypothesis: str, speaker: str | None = None) -> ScoredUtterance:
    errors = count_errors(reference, hypothesis)
    counts = errors.substitutions, errors.deletions, errors.insertions
    return ScoredUtterance(id, reference, hypothesis, *counts, speaker)


def write(file: Path, rows: list[ScoredUtterance]) -> Path:
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text("".join(row.to_line() + "\n" for row in rows), encoding="utf-8")
    return file


WORSE = [scored(f"u{index:02d}", "one two three four", "one two five four") for index in range(40)]
BETTER = [scored(f"u{index:02d}", "one two three four", "one two three four") for index in range(40)]


def test_a_system_equals_itself(tmp_path: Path) -> None:
    rows = [scored("a", "one two", "one too"), scored("b", "three", "three"), scored("c", "", "x")]
    file = write(tmp_path / "hypotheses.jsonl", rows)
    found = compare(file, tmp_path)  # the file, and the folder that holds it
    assert found.difference is not None
    assert (found.difference.difference, found.difference.interval) == (0.0, (0.0, 0.0))
    assert found.difference.probability_of_improvement == 0.5
    assert (found.better, found.worse, found.equal) == (0, 0, 3)
    assert found.only_first_right == found.only_second_right == found.most_different == ()
    assert "do not tell the two apart" in show_comparison(found)
    assert "+0.00 points" in show_comparison(found)


def test_a_system_that_is_better_everywhere_is_certainly_better(tmp_path: Path) -> None:
    first, second = write(tmp_path / "first", WORSE), write(tmp_path / "second", BETTER)
    found = compare(first, second)
    assert (found.first.wer, found.first.interval) == (0.25, (0.25, 0.25))
    assert (found.second.wer, found.second.interval) == (0.0, (0.0, 0.0))
    assert found.difference is not None
    assert (found.difference.difference, found.difference.interval) == (-0.25, (-0.25, -0.25))
    assert found.difference.probability_of_improvement == 1.0
    assert (found.better, found.worse, found.equal, found.words) == (40, 0, 0, 160)
    assert found.only_second_right == tuple(row.id for row in WORSE)
    assert "the second is better" in show_comparison(found)
    assert "the first is better" in show_comparison(compare(second, first))


def test_one_utterance_alone_decides_nothing(tmp_path: Path) -> None:
    found = compare(write(tmp_path / "first", BETTER), write(tmp_path / "second", [*BETTER[:39], WORSE[39]]))
    assert (found.better, found.worse, found.equal) == (0, 1, 39)
    assert found.only_first_right == ("u39",)
    assert [mine.id for mine, _ in found.most_different] == ["u39"]
    assert "do not tell the two apart" in show_comparison(found)


def test_the_order_of_the_lines_changes_nothing(tmp_path: Path) -> None:
    draws = random.Random(4)
    rows = [scored(f"u{index}", "a b c", " ".join(draws.choices("abc", k=3)), f"s{index % 5}") for index in range(30)]
    others = [scored(row.id, row.reference, " ".join(draws.choices("abc", k=3)), row.speaker) for row in rows]
    first, second = tmp_path / "first", tmp_path / "second"
    found = compare(write(first, rows), write(second, others))
    again = compare(write(first, draws.sample(rows, 30)), write(second, draws.sample(others, 30)))
    assert again == found
    assert found.block is Block.speaker


def test_a_speaker_known_to_one_system_is_known(tmp_path: Path) -> None:
    named = [replace(row, speaker=f"s{index % 2}") for index, row in enumerate(WORSE)]
    first, second = write(tmp_path / "first", named), write(tmp_path / "second", BETTER)
    assert compare(first, second).block is compare(second, first).block is Block.speaker


def test_references_without_a_word_have_no_difference(tmp_path: Path) -> None:
    file = write(tmp_path / "h.jsonl", [scored("a", "", "x"), scored("b", "", "")])
    found = compare(file, file)
    assert (found.first.wer, found.first.interval, found.difference) == (None, None, None)
    write_comparison(tmp_path, found)
    assert json.loads((tmp_path / "comparison.json").read_text())["difference"] is None
    assert "WER n/a" in show_comparison(found)
    assert "no rate to compare" in show_comparison(found)


def test_different_sets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"second lacks 1 \(u39\)"):
        compare(write(tmp_path / "first", WORSE), write(tmp_path / "second", BETTER[:39]))


def test_the_files_hold_the_comparison(tmp_path: Path) -> None:
    first = [scored("a", "one two", "one two"), scored("b", "x | y z", ""), scored("c", "p", "q")]
    second = [scored("a", "one two", "one <b>"), scored("b", "x | y z", "x | y z"), scored("c", "p", "r")]
    paths = write(tmp_path / "1" / "hypotheses.jsonl", first), write(tmp_path / "2" / "hypotheses.jsonl", second)
    write_comparison(tmp_path / "out", compare(*paths))
    content = json.loads((tmp_path / "out" / "comparison.json").read_text(encoding="utf-8"))
    assert content["first"] == {
        "hypotheses": paths[0].as_posix(),
        "wer": 5 / 7,
        "interval": content["first"]["interval"],
        "substitutions": 1,
        "deletions": 4,
        "insertions": 0,
        "sentence_errors": 2,
    }
    assert content["difference"] == pytest.approx(-3 / 7)
    keys = ("utterances", "words", "block", "better", "worse", "equal", "only_first_right", "only_second_right")
    assert [content[key] for key in keys] == [3, 7, "utterance", 1, 1, 1, ["a"], ["b"]]
    page = (tmp_path / "out" / "comparison.md").read_text(encoding="utf-8")
    assert "| b | first | 4 | [−x] [−\\|] [−y] [−z] |\n|  | second | 0 | x \\| y z |" in page
    assert page.index("| b | first") < page.index("| a | first | 0 | one two |")
    assert "one [two→&lt;b>]" in page
    assert "| c |" not in page
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["comparison.json", "comparison.md"]


def test_where_nothing_differs_the_page_says_so(tmp_path: Path) -> None:
    file = write(tmp_path / "h.jsonl", WORSE)
    write_comparison(tmp_path, compare(file, file))
    assert "as many errors in every utterance" in (tmp_path / "comparison.md").read_text(encoding="utf-8")
