import pytest

from chunkwise.data.corpora import progress
from chunkwise.data.corpora.progress import track


def test_items_pass_through(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track(iter("abc"), "reading", 3)) == ["a", "b", "c"]
    assert capsys.readouterr().out == ""


def test_without_a_terminal_plain_lines_go_to_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    list(track("abc", "reading", 3))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["reading: 0 of 3", "reading: 1 of 3", "reading: 2 of 3"]


def test_on_a_terminal_there_is_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    assert list(track("abc", "reading", 3)) == ["a", "b", "c"]
    assert "reading" in capsys.readouterr().err
