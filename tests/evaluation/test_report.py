"""The report shows every context, the pictures and the partial results; the summary holds percents."""

import json
from pathlib import Path

import pytest

from chunkwise.evaluation.report import Report, StreamedTranscript, hardest_utterances, write_report
from chunkwise.evaluation.tally import ScoredUtterance
from chunkwise.evaluation.wer import ErrorCounts

RIGHT = ScoredUtterance("a", "one two", "one two", 0, 0, 0)
WRONG = ScoredUtterance("b", "one two", "one too three", 1, 0, 1)
WORSE = ScoredUtterance("c", "one two three", "", 0, 3, 0)


def make_report(folder: Path) -> Report:
    curve, spectrogram = folder / "training curve.png", folder / "plots" / "spectrogram.png"
    spectrogram.parent.mkdir(parents=True)
    curve.touch()
    spectrogram.touch()
    partials = [(0.64, ""), (1.28, "one"), (1.92, "one | two")]
    return Report(
        title="Demo",
        summary="A sentence.",
        errors={"full": ErrorCounts(utterances=3, words=300, substitutions=1), "640ms": ErrorCounts(utterances=3)},
        pages={"full": folder / "evaluations" / "test-full" / "report.html"},
        curve=curve,
        spectrogram=spectrogram,
        streamed=StreamedTranscript(name="b.wav", reference="one two", partials=partials, final="one too"),
        hardest=(WRONG,),
        parameters=1_600_000,
        train_s=300.04,
        total_s=400.0,
    )


def test_the_report_shows_rates_pictures_and_partials(tmp_path: Path) -> None:
    write_report(tmp_path, make_report(tmp_path))
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| full | **0.33 %** | 1 | 0 | 0 | 300 |" in page
    assert "| 640ms | **n/a** |" in page
    assert "](training%20curve.png)" in page
    assert "](plots/spectrogram.png)" in page
    assert "| 1.92 s | one \\| two |" in page
    assert "one [two→too]" in page
    assert "1,600,000 parameters" in page
    assert "plots: [full](evaluations/test-full/report.html)." in page


def test_the_summary_holds_percents_seconds_and_parameters(tmp_path: Path) -> None:
    write_report(tmp_path, make_report(tmp_path))
    assert json.loads((tmp_path / "summary.json").read_text()) == {
        "wer": {"full": 0.3333, "640ms": None},
        "train_s": 300.0,
        "total_s": 400.0,
        "parameters": 1_600_000,
    }


def test_a_missing_picture_is_named(tmp_path: Path) -> None:
    report = make_report(tmp_path)
    report.curve.unlink()
    with pytest.raises(FileNotFoundError, match=r"training curve\.png is missing"):
        write_report(tmp_path, report)
    assert not (tmp_path / "report.md").exists()


def test_the_hardest_utterances_come_first_and_are_wrong() -> None:
    assert hardest_utterances((RIGHT, WRONG, WORSE)) == (WORSE, WRONG)
    assert hardest_utterances((RIGHT, WRONG, WORSE), limit=1) == (WORSE,)
