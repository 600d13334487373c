"""What a run keeps and shows, and what it keeps to itself."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from chunkwise.training.console import Console
from chunkwise.training.dashboard import ForgivingDashboard, NoDashboard, Record
from chunkwise.training.log import LoggerConfig, RunLog, WandbMode, open_log, take_back

CONFIG: dict[str, Any] = {"seed": 1, "encoder": {"d_model": 8, "sizes": [1, 2]}, "name": None}


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_one_json_object_per_record_and_null_for_what_is_not_finite(tmp_path: Path) -> None:
    with open_log(tmp_path, LoggerConfig(wandb=WandbMode.disabled), CONFIG, max_steps=10) as log:
        log.record({"step": 1, "loss": 0.5})
        log.record({"step": 2, "loss": float("nan")})
    assert records(tmp_path) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None}]
    assert not (tmp_path / "wandb").exists()


def test_a_resumed_log_forgets_what_was_not_saved(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 1}\n{"step": 3}\n{"step": 2}\n{"step": 4, "lo')
    take_back(metrics, step=2)
    assert metrics.read_text() == '{"step": 1}\n{"step": 2}\n'
    take_back(metrics, step=0)
    assert metrics.read_text() == ""
    take_back(tmp_path / "none.jsonl", step=0)


def test_other_ranks_write_and_say_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_log(tmp_path / "run", LoggerConfig(), CONFIG, max_steps=10, is_main=False) as log:
        log.say("hello")
        log.record({"step": 1})
    assert not (tmp_path / "run").exists()
    assert capsys.readouterr().out == ""


def test_two_offline_runs_in_one_process_stay_two_and_a_resumed_one_keeps_its_id(tmp_path: Path) -> None:
    identities = []
    for folder in (tmp_path / "a", tmp_path / "b", tmp_path / "a"):
        with open_log(folder, LoggerConfig(), CONFIG, max_steps=10) as log:
            log.record({"step": 1, "loss": 0.5})
        identities.append((folder / "wandb" / "run-id").read_text())
    assert identities[0] == identities[2] != identities[1]
    assert len(list((tmp_path / "a" / "wandb").glob("offline-run-*"))) == 2
    assert len(list((tmp_path / "b" / "wandb").glob("offline-run-*"))) == 1


def test_online_without_a_key_is_refused_without_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(ValueError, match=r"logger\.wandb=online finds no credentials.*logger\.wandb=offline"):
        open_log(tmp_path, LoggerConfig(wandb=WandbMode.online), CONFIG, max_steps=10)


def test_draws_are_kept_as_a_histogram(tmp_path: Path) -> None:
    with open_log(tmp_path, LoggerConfig(), CONFIG, max_steps=10) as log:
        log.histogram("chunk_frames", 4, {16: 2, None: 1, 8: 1})
    kept = json.loads((tmp_path / "chunk_frames_histogram.json").read_text())
    assert kept == {"step": 4, "counts": {"8": 1, "16": 2, "unlimited": 1}}
    assert list(kept["counts"]) == ["8", "16", "unlimited"]


class BrokenDashboard(NoDashboard):
    def log(self, record: Record) -> None:
        raise ConnectionError("gone")


def test_a_dashboard_that_breaks_is_said_once_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(10)
    log = RunLog(tmp_path / "metrics.jsonl", console, ForgivingDashboard(BrokenDashboard(), console.say))
    log.record({"step": 1})
    log.record({"step": 2})
    log.close()
    assert capsys.readouterr().out.count("W&B stopped working (ConnectionError: gone)") == 1
    assert [record["step"] for record in records(tmp_path)] == [1, 2]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_a_file_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, terminal = io.StringIO(), Terminal()
    for stream in (lines, terminal):
        monkeypatch.setattr("sys.stdout", stream)
        console = Console(10)
        console.say("[data] 3 utterances")
        console.step(5, "step 5/10")
        console.close()
    assert lines.getvalue() == "[data] 3 utterances\nstep 5/10\n"
    assert "[data] 3 utterances" in terminal.getvalue()
    assert "5/10" in terminal.getvalue()
    assert "━" in terminal.getvalue()


def test_an_interval_that_never_comes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"logger\.every_steps=0"):
        LoggerConfig(every_steps=0)
