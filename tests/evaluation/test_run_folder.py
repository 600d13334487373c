"""A run folder is read back as it was written; what it lacks is named."""

from dataclasses import asdict
from pathlib import Path

import pytest

from chunkwise.evaluation.run_folder import (
    RunFacts,
    StoredEvaluation,
    StoredMetrics,
    StoredTiming,
    evaluation_folder,
    read_evaluations,
    read_rows,
)
from chunkwise.evaluation.typed_json import to_json, write_atomically
from chunkwise.models.context import ChunkContext

FACTS = RunFacts(
    command="chunkwise-train",
    commit="abcdef0",
    dirty=True,
    config={"seed": 3, "data": {"corpus": "fsdd", "holdout_speaker": None}},
    parameters=5,
    train_s=1.5,
    train_hours=0.25,
    device="2x CPU",
    torch="2.14.1",
    lookahead_ms=37.5,
)
METRICS = StoredMetrics(
    utterances=1,
    words=0,
    substitutions=0,
    deletions=0,
    insertions=0,
    sentence_errors=0,
    characters=0,
    character_errors=0,
    wer=None,
    wer_interval=None,
    cer=None,
    audio_s=1.0,
)
TIMING = StoredTiming(compute_s=0.1, rtf=0.1)


def test_the_facts_survive_writing_and_reading(tmp_path: Path) -> None:
    FACTS.write(tmp_path)
    assert RunFacts.read(tmp_path) == FACTS
    assert FACTS.setting("data.holdout_speaker") is None
    with pytest.raises(ValueError, match=r"config has no data\.colour"):
        FACTS.setting("data.colour")


def test_evaluations_are_found_by_split_and_context(tmp_path: Path) -> None:
    contexts = [ChunkContext(None, None), ChunkContext(16, None), ChunkContext(8, 2)]
    for context in contexts:
        folder = evaluation_folder(tmp_path, "test_other", context)
        write_atomically(folder / "metrics.json", to_json(asdict(METRICS)))
        write_atomically(folder / "timing.json", to_json(asdict(TIMING)))
    found = read_evaluations(tmp_path)
    assert set(found) == {("test_other", context.label) for context in contexts}
    assert found["test_other", "full"] == StoredEvaluation(metrics=METRICS, timing=TIMING)


def test_the_evaluations_of_a_grid_are_found_and_one_by_itself_counts_before_them(tmp_path: Path) -> None:
    grid = tmp_path / "evaluations" / "test-grid"
    alone = StoredTiming(compute_s=9.0, rtf=9.0)
    for folder, timing in (
        (grid / "test-320ms", TIMING),
        (grid / "test-640ms", TIMING),
        (tmp_path / "evaluations" / "test-grid-streaming" / "test-640ms-streaming", TIMING),
        (evaluation_folder(tmp_path, "test", ChunkContext(8)), alone),
    ):
        write_atomically(folder / "metrics.json", to_json(asdict(METRICS)))
        write_atomically(folder / "timing.json", to_json(asdict(timing)))
    found = read_evaluations(tmp_path)
    assert list(found) == [("test", "320ms"), ("test", "640ms"), ("test", "640ms-streaming")]
    assert found["test", "320ms"].timing == alone


def test_a_run_that_was_not_evaluated_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="evaluate the run first"):
        read_evaluations(tmp_path)


def test_a_line_that_is_cut_off_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"text": "a\u2028b"}\n\n{"step": 2}\n', encoding="utf-8")
    assert read_rows(path) == [{"text": "a\u2028b"}, {"step": 2}]
    path.write_text('{"step": 1}\n{"st')
    with pytest.raises(ValueError, match=r"metrics\.jsonl: line 2 is not JSON"):
        read_rows(path)
