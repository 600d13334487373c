"""An evaluation's files hold exact integers, undefined rates as null, and bytes that depend on the result alone."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chunkwise.evaluation.results import write_evaluation
from chunkwise.evaluation.tally import Evaluation, ScoredUtterance
from chunkwise.evaluation.wer import ErrorCounts

COUNTS = ErrorCounts(utterances=2, words=16_777_217, substitutions=1, deletions=2, insertions=0, sentence_errors=1)
EVALUATION = Evaluation(
    counts=COUNTS,
    audio_s=4.0,
    compute_s=1.0,
    utterances=(ScoredUtterance("é", "one", "⁇", 1, 0, 0), ScoredUtterance("鬱", "a b", "", 0, 2, 0)),
)


def test_the_metrics_hold_integers_first_in_a_fixed_order(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "évaluation [1]", EVALUATION)
    metrics = json.loads((tmp_path / "évaluation [1]" / "metrics.json").read_text(encoding="utf-8"))
    errors = ["utterances", "words", "substitutions", "deletions", "insertions", "sentence_errors"]
    assert list(metrics) == [*errors, "characters", "character_errors", "wer", "cer", "audio_s"]
    assert metrics["words"] == 16_777_217
    assert metrics["wer"] == 3 / 16_777_217
    timing = json.loads((tmp_path / "évaluation [1]" / "timing.json").read_text(encoding="utf-8"))
    assert timing == {"compute_s": 1.0, "rtf": 0.25}


def test_undefined_rates_are_null(tmp_path: Path) -> None:
    nothing = replace(EVALUATION, counts=ErrorCounts(utterances=2, insertions=3), audio_s=0.0)
    write_evaluation(tmp_path, nothing)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert (metrics["wer"], metrics["cer"]) == (None, None)
    assert json.loads((tmp_path / "timing.json").read_text()) == {"compute_s": 1.0, "rtf": None}


def test_hypotheses_are_lines_of_readable_text(tmp_path: Path) -> None:
    write_evaluation(tmp_path, EVALUATION)
    lines = (tmp_path / "hypotheses.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    errors = ["substitutions", "deletions", "insertions"]
    assert list(json.loads(lines[0])) == ["id", "reference", "hypothesis", *errors, "speaker"]
    assert '"⁇"' in lines[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hypotheses.jsonl", "metrics.json", "timing.json"]


def test_a_rank_without_utterances_may_not_write(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only rank 0"):
        write_evaluation(tmp_path, replace(EVALUATION, utterances=None))
