"""A record is checked when it is made, read and shown; whatever is wrong is named with its file and key."""

import json
from pathlib import Path
from typing import Any

import pytest

from chunkwise.evaluation.run_folder import RunFacts
from chunkwise.evaluation.typed_json import to_json, write_atomically
from chunkwise.records import Verdict, board, main, read_record, read_records, record_from_runs, write_record

README = "# Question\n\n## Change\n\n## Result\n\n## Reading\n\n## Next\n"

PLAIN: dict[str, Any] = {
    "id": "001_first",
    "date": "2026-02-01",
    "commit": "3f1c9ab",
    "dirty": False,
    "command": "chunkwise-train",
    "seeds": [1, 2],
    "corpus": {"name": "digits", "train_hours": 5, "test_utterances": 300},
    "parameters": 1_600_000,
    "hardware": {"device": "2x CPU", "torch": "2.14.1", "train_s": 400.5},
    "baseline": None,
    "verdict": "baseline",
    "metrics": [
        {
            "split": "test",
            "context": "640ms",
            "decoding": "greedy",
            "wer": [0.01, 0.02],
            "substitutions": 4,
            "deletions": 1,
            "insertions": 0,
            "algorithmic_latency_ms": 657.5,
            "rtf": None,
        }
    ],
}


def store(folder: Path, **changes: Any) -> Path:
    record = {**PLAIN, **changes}
    path = folder / record["id"] / "record.json"
    write_atomically(path, json.dumps(record))
    write_atomically(path.with_name("README.md"), README)
    return path


def run_folder(folder: Path, seed: int, wrong: int, speaker: str | None = None, **facts: Any) -> Path:
    run = folder / f"{seed}-{speaker}"
    config = {
        "seed": seed,
        "data": {"corpus": "fsdd", "holdout_speaker": speaker},
        "decoding": {"kind": "greedy"},
    }
    plain = {"command": "chunkwise-train", "commit": "abcdef0", "dirty": False, "config": config, "parameters": 7}
    measured = {"train_s": 10.0 * seed, "train_hours": 1.5, "device": "2x CPU", "torch": "2", "lookahead_ms": 37.5}
    RunFacts(**{**plain, **measured, **facts}).write(run)
    errors = {"substitutions": wrong, "deletions": 0, "insertions": 1, "sentence_errors": 1}
    characters = {"characters": 40, "character_errors": 9}
    rates = {"wer": (wrong + 1) / 10, "cer": 9 / 40, "audio_s": 6.0}
    for context in ("full", "640ms"):
        metrics = {"utterances": 2, "words": 10, **errors, **characters, **rates}
        write_atomically(run / "evaluations" / f"test-{context}" / "metrics.json", to_json(metrics))
        timing = {"compute_s": 0.6 * seed, "rtf": 0.1 * seed}
        write_atomically(run / "evaluations" / f"test-{context}" / "timing.json", to_json(timing))
    return run


def test_a_record_survives_writing_and_reading(tmp_path: Path) -> None:
    record = read_record(store(tmp_path))
    path = write_record(tmp_path, record)
    assert read_record(path) == record
    assert list(json.loads(path.read_text())) == list(PLAIN)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "first"}, "id=first must read NNN_slug"),
        ({"date": "yesterday"}, "date=yesterday"),
        ({"commit": ""}, "commit="),
        ({"seeds": []}, "seeds="),
        ({"seeds": [1]}, r"metrics\[0\].wer=\[0.01, 0.02\] must hold one rate per seed"),
        ({"seeds": [1, 1]}, r"seeds=\[1, 1\] must differ"),
        ({"parameters": 1.5}, "parameters=1.5 must be an integer"),
        ({"dirty": 0}, "dirty=0 must be true or false"),
        ({"verdict": "good"}, "verdict='good' must be one of kept, rejected, baseline"),
        ({"baseline": "000_x"}, "baseline=000_x must be null where verdict=baseline"),
        ({"colour": "red"}, "colour is no known key"),
        ({"hardware": {"device": "CPU", "torch": "2"}}, "hardware.train_s is missing"),
        ({"metrics": {}}, "metrics={} must be a list"),
        ({"metrics": [{**PLAIN["metrics"][0], "wer": [0.1, "?"]}]}, r"metrics\[0\].wer\[1\]='\?' must be a number"),
        ({"metrics": [{**PLAIN["metrics"][0], "wer": [0.1, -1]}]}, r"metrics\[0\].wer=.* must be finite"),
        ({"metrics": [{**PLAIN["metrics"][0], "deletions": -1}]}, r"metrics\[0\].deletions=-1"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = store(tmp_path, **changes)
    with pytest.raises(ValueError, match=message) as caught:
        read_record(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_is_no_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "001_first" / "record.json"
    with pytest.raises(FileNotFoundError, match="cannot be read"):
        read_record(path)
    write_atomically(path, "{")
    with pytest.raises(ValueError, match="is not JSON"):
        read_record(path)
    write_atomically(path, "[]")
    with pytest.raises(ValueError, match="must be an object"):
        read_record(path)


def test_a_record_needs_its_text_and_a_known_baseline(tmp_path: Path) -> None:
    path = store(tmp_path, baseline="000_none", verdict="kept")
    with pytest.raises(ValueError, match="baseline=000_none is no record"):
        read_records(tmp_path)
    store(tmp_path)
    path.with_name("README.md").write_text("# Question\n")
    with pytest.raises(ValueError, match="no heading Change, Result, Reading, Next"):
        read_records(tmp_path)
    path.with_name("README.md").unlink()
    with pytest.raises(ValueError, match="README.md is missing"):
        read_records(tmp_path)
    path.rename(path.parent.parent / "record.json")
    with pytest.raises(ValueError, match="must be its folder's name"):
        read_record(tmp_path / "record.json")


def test_the_board_shows_each_record_in_order(tmp_path: Path) -> None:
    store(tmp_path, id="002_second", baseline="001_first", verdict="rejected", dirty=True)
    store(tmp_path)
    page = board(read_records(tmp_path))
    rows = [line for line in page.splitlines() if line.startswith("| [")]
    assert [row.split("]")[0] for row in rows] == ["| [001_first", "| [002_second"]
    assert "test 640ms: 1.50 ± 0.71 % (n=2)" in rows[0]
    assert "rejected" in rows[1]
    assert "+ changes" in rows[1]
    assert "No record yet." in board([])


def test_the_check_fails_until_the_board_is_rebuilt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store(tmp_path)
    command = ["--folder", str(tmp_path)]
    assert main([*command, "--check"]) == 1
    assert "differs from the records" in capsys.readouterr().err
    assert main(command) == 0
    assert main([*command, "--check"]) == 0
    store(tmp_path, parameters=5)
    assert main([*command, "--check"]) == 1


def test_a_record_is_made_from_the_runs_of_several_seeds(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path, seed=1, wrong=0), run_folder(tmp_path, seed=2, wrong=3)]
    record = record_from_runs("001_first", runs, Verdict.kept)
    assert record.seeds == (1, 2)
    assert (record.commit, record.parameters, record.hardware.train_s) == ("abcdef0", 7, 15.0)
    assert (record.corpus.name, record.corpus.train_hours, record.corpus.test_utterances) == ("fsdd", 1.5, 2)
    chunked, full = record.metrics
    assert (chunked.split, chunked.context, full.context) == ("test", "640ms", "full")
    assert full.wer == (0.1, 0.4)
    assert (full.substitutions, full.deletions, full.insertions) == (3, 0, 2)
    assert (full.algorithmic_latency_ms, chunked.algorithmic_latency_ms) == (None, 677.5)
    assert full.rtf == pytest.approx(0.15)


def test_held_out_speakers_are_splits_of_one_record(tmp_path: Path) -> None:
    runs = [
        run_folder(tmp_path, seed=1, wrong=1, speaker="theo"),
        run_folder(tmp_path, seed=1, wrong=3, speaker="lucas"),
    ]
    record = record_from_runs("001_first", runs, Verdict.baseline)
    assert {metric.split for metric in record.metrics} == {"test:theo", "test:lucas"}
    assert record.corpus.test_utterances == 4
    assert "test full: 30.00 ± 14.14 % (n=2)" in board([record])


def test_runs_of_different_experiments_make_no_record(tmp_path: Path) -> None:
    first = run_folder(tmp_path / "a", seed=1, wrong=0)
    other = run_folder(tmp_path / "b", seed=2, wrong=0, commit="1234567")
    with pytest.raises(ValueError, match="commit=1234567 must be that of"):
        record_from_runs("001_first", [first, other], Verdict.kept)
    with pytest.raises(ValueError, match="seed=1 is that of another run"):
        record_from_runs("001_first", [first, first], Verdict.kept)
    (other / "run.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"run\.json cannot be read"):
        record_from_runs("001_first", [first, other], Verdict.kept)


def test_a_record_is_added_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(tmp_path, seed=1, wrong=0)
    experiments = tmp_path / "experiments"
    command = ["--folder", str(experiments), "add", "003_third", str(run), "--verdict", "baseline"]
    assert main(command) == 0
    assert read_record(experiments / "003_third" / "record.json").seeds == (1,)
    assert main([*command[:3], "third", *command[4:]]) == 1
    assert "must read NNN_slug" in capsys.readouterr().err
