"""Plots of results are PNG files whose bytes follow from the result, for any texts and for almost none."""

import struct

import pytest

from chunkwise.evaluation.result_plots import SpeakerRate, plot_delays, plot_errors, plot_speakers
from chunkwise.evaluation.tally import ScoredUtterance
from chunkwise.streaming.latency import Delays

PNG = b"\x89PNG\r\n\x1a\n"


def size(png: bytes) -> tuple[int, int]:
    """Width and height in pixels."""
    assert png.startswith(PNG)
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def scored(words: int, errors: int) -> ScoredUtterance:
    return ScoredUtterance("u", "w " * words, "", 0, errors, 0)


def test_equal_results_are_equal_bytes_without_a_version() -> None:
    rows = [scored(3, 1), scored(30, 40), scored(50, 0)]
    picture = plot_errors(rows)
    assert picture == plot_errors(rows)
    assert picture != plot_errors(rows[:2])
    assert b"Software" not in picture
    assert b"atplotlib" not in picture
    assert b"Date" not in picture


@pytest.mark.parametrize("rows", [[scored(1, 0)], [scored(0, 2), scored(1, 1)], [scored(0, 0)]])
def test_few_utterances_have_a_plot(rows: list[ScoredUtterance]) -> None:
    assert size(plot_errors(rows))[0] > 400


def test_speakers_of_any_name_have_a_line_each() -> None:
    names = ["音", "שלום", "a$b$_{", "x" * 500, "line\nend", "\U0001f600", ""]
    speakers = [SpeakerRate(name=name, wer=0.1, interval=(0.05, 0.2)) for name in names]
    alone = [SpeakerRate(name="s", wer=0.0, interval=None)]
    assert size(plot_speakers(speakers))[1] > size(plot_speakers(alone))[1]
    assert size(plot_speakers(speakers))[0] == size(plot_speakers(alone))[0]


def test_delays_may_be_one_or_none() -> None:
    one, many = Delays(), Delays()
    one.add([120.0])
    many.add([-40.0, 120.0, 120.0, 500.0])
    both = plot_delays({"one": one, "many": many})
    assert size(both)[0] > 400
    assert plot_delays({"one": one, "many": many, "none": Delays()}) == both
    assert plot_delays({"one": one}) != both
