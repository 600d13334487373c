"""The report of an evaluation is complete, self-contained and well-formed, and depends on the result alone."""

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from chunkwise.evaluation.page import write_page
from chunkwise.evaluation.results import stored_metrics
from chunkwise.evaluation.tally import Evaluation, ScoredUtterance
from chunkwise.evaluation.wer import ErrorCounts, count_errors
from chunkwise.streaming.latency import Latency

Text = tuple[str, str, str | None]  # reference, hypothesis, speaker


class Page(HTMLParser):
    """The rows of the tables, the headings and the pictures of a page whose tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.headings: list[str] = []
        self.pictures: list[str] = []
        self.names: set[str] = set()
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {tag, *(name for name, _ in attrs)}
        match tag:
            case "img":
                self.pictures.append(dict(attrs)["src"] or "")
            case "tr":
                self.rows.append([])
            case "td" | "th":
                self.rows[-1].append("")
            case "h2":
                self.headings.append("")
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data
        elif "h2" in self.open:
            self.headings[-1] += data

    def row(self, first: str) -> list[str]:
        """The one row that begins so."""
        [found] = [row for row in self.rows if row and row[0] == first]
        return found


def evaluation(texts: Sequence[Text], latency: Latency | None = None) -> Evaluation:
    rows, counts = [], ErrorCounts()
    for index, (reference, hypothesis, speaker) in enumerate(texts):
        errors = count_errors(reference, hypothesis)
        counts += errors
        kinds = errors.substitutions, errors.deletions, errors.insertions
        rows.append(ScoredUtterance(f"u{index:03d}", reference, hypothesis, *kinds, speaker))
    return Evaluation(counts=counts, audio_s=12.5, compute_s=1.0, utterances=tuple(rows), latency=latency)


def pages(folder: Path, result: Evaluation, title: str = "yesno test, full") -> tuple[Page, str, str]:
    """The parsed page, its text, and the Markdown."""
    write_page(folder, title, result, stored_metrics(result))
    assert sorted(file.name for file in folder.iterdir()) == ["report.html", "report.md"]
    html, markdown = (folder.joinpath(f"report.{kind}").read_text(encoding="utf-8") for kind in ("html", "md"))
    return Page(html), html, markdown


TEXTS: list[Text] = [
    ("one two three four", "one two five four", "anna"),
    ("one two three four", "one two five", "anna"),
    ("one two", "one two", "bert"),
    ("one two", "one two oh", "bert"),
]


def test_the_page_tells_rates_hardest_confusions_and_speakers(tmp_path: Path) -> None:
    page, _, markdown = pages(tmp_path, evaluation(TEXTS))
    assert page.headings == ["Error rates", "Hardest utterances", "Most frequent confusions", "Speakers"]
    assert page.row("word errors (WER)")[1:4] == ["4", "12", "33.33 %"]
    assert page.row("word errors (WER)")[4].endswith(" % (over 2 speakers)")
    assert page.row("– substitutions")[1:4] == ["2", "12", "16.67 %"]
    assert page.row("– deletions")[1:4] == page.row("– insertions")[1:4] == ["1", "12", "8.33 %"]
    assert page.row("utterances with an error")[1:4] == ["3", "4", "75.00 %"]
    assert page.row("u001") == ["u001", "2", "50.00 %", "one two [three→five] [−four]"]
    hardest = [row[0] for row in page.rows if re.fullmatch(r"u\d+", row[0])]
    assert hardest == ["u001", "u000", "u003"]
    assert page.row("three") == ["three", "five", "2"]
    assert page.row("four") == ["four", "1"]
    assert page.row("oh") == ["oh", "1"]
    assert page.row("anna") == ["anna", "2", "8", "2", "1", "0", "37.50 %", "25.00 to 50.00 %"]
    speakers = [row[0] for row in page.rows if row[0] in ("anna", "bert")]
    assert speakers == ["anna", "bert"]
    assert len(page.pictures) == 2
    assert "| u001 | 2 | 50.00 % | one two [three→five] [−four] |" in markdown
    assert "| bert | 2 | 4 | 0 | 0 | 1 | 25.00 % | 0.00 to 50.00 % |" in markdown
    assert "4 utterances, 12.5 s of audio." in markdown


def test_the_page_needs_no_other_file_and_no_script(tmp_path: Path) -> None:
    latency = Latency()
    latency.word.add([1.0, 2.0])
    page, html, _ = pages(tmp_path, evaluation(TEXTS, latency))
    assert "http" not in html
    assert "url(" not in html
    assert "@import" not in html
    assert not page.names & {"script", "link", "iframe", "object", "href", "onload", "srcset"}
    assert len(page.pictures) == html.count("src=") == 3
    assert all(picture.startswith("data:image/png;base64,") for picture in page.pictures)


def test_the_same_result_is_the_same_bytes_however_long_it_took(tmp_path: Path) -> None:
    result = evaluation(TEXTS)
    first, second = pages(tmp_path / "a", result), pages(tmp_path / "b", replace(result, compute_s=99.0))
    assert first[1:] == second[1:]


def test_streams_have_their_delays(tmp_path: Path) -> None:
    latency = Latency()
    latency.compute.add([10.0, 20.0, 30.0])
    latency.word.add(float(delay) for delay in range(1, 101))
    page, _, markdown = pages(tmp_path, evaluation(TEXTS, latency))
    assert page.headings[-1] == "Latency"
    assert page.row("compute per chunk") == ["compute per chunk", "3", "20.0", "20.0", "30.0", "30.0"]
    assert page.row("word known") == ["word known", "100", "50.5", "50.0", "90.0", "99.0"]
    assert page.row("first token") == ["first token", "0", "n/a", "n/a", "n/a", "n/a"]
    assert "| word known | 100 | 50.5 | 50.0 | 90.0 | 99.0 |" in markdown


def test_without_errors_the_page_says_so(tmp_path: Path) -> None:
    page, html, markdown = pages(tmp_path, evaluation([("one", "one", None), ("two", "two", None)]))
    assert page.headings == ["Error rates", "Hardest utterances", "Most frequent confusions"]
    assert html.count("No errors.") == markdown.count("No errors.") == 2
    assert page.row("word errors (WER)") == [
        "word errors (WER)",
        "0",
        "2",
        "0.00 %",
        "0.00 to 0.00 % (over 2 utterances)",
    ]


def test_without_a_word_there_is_no_rate(tmp_path: Path) -> None:
    page, _, _ = pages(tmp_path, evaluation([("", "x y", "s"), ("", "", "t")]))
    assert page.row("word errors (WER)") == ["word errors (WER)", "2", "0", "n/a", "n/a"]
    assert page.row("u000") == ["u000", "2", "n/a", "[+x] [+y]"]
    assert page.row("s") == ["s", "1", "0", "0", "0", "2", "n/a", "n/a"]
    assert page.pictures == []


def test_no_utterance_at_all_is_a_page(tmp_path: Path) -> None:
    page, _, _ = pages(tmp_path, evaluation([]))
    assert page.row("word errors (WER)") == ["word errors (WER)", "0", "0", "n/a", "n/a"]


def test_any_text_is_shown_as_it_is(tmp_path: Path) -> None:
    texts: list[Text] = [
        ("a <b>&amp; | c", 'a <i> "', "<s>&|"),
        ("שלום עולם", "שלום", "音"),
        ("音楽 が", "音 が", "$x_{"),
    ]
    page, html, markdown = pages(tmp_path, evaluation(texts), "<title> & | http")
    assert page.row("u000")[3] == 'a [<b>&amp;→<i>] [|→"] [−c]'
    assert page.row("u001")[3] == "שלום [−עולם]"
    assert page.row("u002")[3] == "[音楽→音] が"
    assert page.row("<s>&|")[1] == page.row("音")[1] == page.row("$x_{")[1] == "1"
    assert "<title>&lt;title&gt; &amp; | http</title>" in html
    assert '[&lt;b>&amp;amp;→&lt;i>] [\\|→"] [−c]' in markdown


def test_an_endless_hypothesis_is_cut(tmp_path: Path) -> None:
    texts: list[Text] = [("one", "x" * 1_000_000, None), ("one", "y " * 500_000, None)]
    page, _, markdown = pages(tmp_path, evaluation(texts))
    assert page.row("u001")[1] == "500,000"
    assert page.row("u001")[3].endswith("(499,800 further words, 499,800 of them wrong)")
    assert len(markdown) < 10_000


def test_long_tables_are_cut_and_say_so(tmp_path: Path) -> None:
    texts: list[Text] = [(f"w{index}", "no", f"s{index:03d}") for index in range(120)]
    page, _, _ = pages(tmp_path, evaluation([*texts, ("w", "no", None)]))
    names = [row[0] for row in page.rows if len(row) == 8][1:]
    assert names == [f"s{index:03d}" for index in range(100)]
    assert sum(len(row) == 3 for row in page.rows) == 1 + 15
    assert len([row for row in page.rows if re.fullmatch(r"u\d+", row[0])]) == 20


def test_those_who_are_not_named_come_together(tmp_path: Path) -> None:
    page, _, _ = pages(tmp_path, evaluation([*TEXTS, ("one", "", None)]))
    assert page.row("(not named)")[1:7] == ["1", "1", "0", "1", "0", "100.00 %"]
    assert page.row("word errors (WER)")[4].endswith("(over 5 utterances)")
