"""An evaluation's files hold exact integers, undefined rates as null, and bytes that depend on the result alone."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chunkwise.evaluation.results import show_evaluation, write_evaluation
from chunkwise.evaluation.run_folder import StoredMetrics
from chunkwise.evaluation.significance import wer_interval
from chunkwise.evaluation.spelling import check_spelling
from chunkwise.evaluation.tally import Evaluation, ScoredUtterance
from chunkwise.evaluation.typed_json import read_json
from chunkwise.evaluation.wer import ErrorCounts
from chunkwise.text.normalisation import normalise
from chunkwise.text.tokenizer import TokenizerConfig, TokenizerKind, train_tokenizer

COUNTS = ErrorCounts(utterances=2, words=16_777_217, substitutions=1, deletions=2, insertions=0, sentence_errors=1)
EVALUATION = Evaluation(
    counts=COUNTS,
    audio_s=4.0,
    compute_s=1.0,
    utterances=(ScoredUtterance("é", "one", "⁇", 1, 0, 0), ScoredUtterance("鬱", "a b", "", 0, 2, 0)),
)


def test_the_metrics_hold_integers_first_in_a_fixed_order(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "évaluation [1]", "digits test, full", EVALUATION)
    metrics = json.loads((tmp_path / "évaluation [1]" / "metrics.json").read_text(encoding="utf-8"))
    errors = ["utterances", "words", "substitutions", "deletions", "insertions", "sentence_errors"]
    tokens = ["reference_tokens", "unknown_tokens", "hypothesis_tokens"]
    assert list(metrics) == [
        *errors,
        "characters",
        "character_errors",
        "wer",
        "cer",
        "audio_s",
        "wer_interval",
        *tokens,
    ]
    assert metrics["words"] == 16_777_217
    assert metrics["wer"] == 3 / 16_777_217
    timing = json.loads((tmp_path / "évaluation [1]" / "timing.json").read_text(encoding="utf-8"))
    assert timing == {"compute_s": 1.0, "rtf": 0.25}


def test_undefined_rates_are_null(tmp_path: Path) -> None:
    nothing = replace(EVALUATION, counts=ErrorCounts(utterances=2, insertions=3), audio_s=0.0)
    write_evaluation(tmp_path, "digits test, full", nothing)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert (metrics["wer"], metrics["cer"]) == (None, None)
    assert json.loads((tmp_path / "timing.json").read_text()) == {"compute_s": 1.0, "rtf": None}


def test_hypotheses_are_lines_of_readable_text(tmp_path: Path) -> None:
    write_evaluation(tmp_path, "digits test, full", EVALUATION)
    lines = (tmp_path / "hypotheses.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    errors = ["substitutions", "deletions", "insertions"]
    assert list(json.loads(lines[0])) == ["id", "reference", "hypothesis", *errors, "speaker"]
    assert '"⁇"' in lines[0]
    files = ["hypotheses.jsonl", "metrics.json", "report.html", "report.md", "timing.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_a_rank_without_utterances_may_not_write(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only rank 0"):
        write_evaluation(tmp_path, "digits test, full", replace(EVALUATION, utterances=None))
    assert list(tmp_path.iterdir()) == []


def test_the_interval_is_that_of_the_utterances_and_stands_beside_the_rate(tmp_path: Path) -> None:
    rows = tuple(
        ScoredUtterance(f"u{n:02d}", "one two", "one" if n % 3 else "one two", 0, n % 3 and 1, 0) for n in range(40)
    )
    counts = ErrorCounts(utterances=40, words=80, deletions=26, sentence_errors=26)
    evaluation = replace(EVALUATION, counts=counts, utterances=rows)
    written = write_evaluation(tmp_path, "digits test, full", evaluation)
    assert written.wer_interval == wer_interval(rows)
    assert read_json(StoredMetrics, tmp_path / "metrics.json") == written
    low, high = written.wer_interval or (1.0, 0.0)
    assert low < 26 / 80 < high
    said = show_evaluation("digits test, full", evaluation, written)
    assert said.startswith(
        f"digits test, full: WER 32.50 %, {100 * low:.2f} to {100 * high:.2f} % in 95 % of resamples"
    )


def test_what_the_tokenizer_cannot_spell_is_reported_with_its_rate(tmp_path: Path) -> None:
    texts = ["one two", "½ cup… of ﬁne　１２", "two  one"]
    tokenizer = train_tokenizer(
        ["one two"], TokenizerConfig(kind=TokenizerKind.char, vocab_size=None), tmp_path / "t.model"
    )
    said = [normalise(text) for text in texts]
    rows = [ScoredUtterance(f"u{index}", text, text, 0, 0, 0) for index, text in enumerate(said)]
    counts = ErrorCounts(utterances=3, words=9)
    write_evaluation(tmp_path, "t", replace(EVALUATION, counts=counts, utterances=tuple(rows)), tokenizer=tokenizer)
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "1 transcripts do not come back" in page
    assert "5 of 9 words are out of its vocabulary (55.56 %)" in page
    assert "| u1 | [1⁄2→??] [cup...→??] [of→o??] [fine→??ne] [12→??] |" in page
    assert check_spelling(rows, tokenizer).oov_words == 5
    write_evaluation(tmp_path / "spelled", "t", EVALUATION, tokenizer=tokenizer)
