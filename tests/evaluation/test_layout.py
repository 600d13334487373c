"""Pages are well-formed whatever the texts hold, and alignments can be read without their colours."""

from html.parser import HTMLParser

import pytest

from chunkwise.evaluation.layout import Alignment, Picture, Section, Table, to_html, to_markdown

VOID = {"meta", "img"}
NASTY = "<script>alert(1)</script> & | \"quoted\" 'so' `code` *bold* [link](target) \\"


class Page(HTMLParser):
    """The tags, attributes and texts of a page, whose tags must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # within which tag, and the text
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data))

    @property
    def text(self) -> str:
        return "".join(data for tag, data in self.texts if tag != "style")


def aligned(reference: str, hypothesis: str) -> list[Section]:
    return [Section(heading="h", blocks=[Table(header=["alignment"], rows=[[Alignment.of(reference, hypothesis)]])])]


def test_texts_are_escaped_everywhere() -> None:
    table = Table(header=[NASTY], rows=[[NASTY, Alignment.of(NASTY, "so")]])
    sections = [Section(heading=NASTY, blocks=[NASTY, table, Picture(shows=NASTY, png=b"x")])]
    page = Page(to_html(NASTY, sections))
    assert not {"script", "b", "a"} & {tag for tag, _ in page.tags}
    assert page.text.count(NASTY) == 6  # title twice, heading, paragraph, header, cell
    assert ("img", {"alt": NASTY, "src": "data:image/png;base64,eA=="}) in page.tags
    plain = to_markdown(NASTY, sections)
    assert "<script" not in plain
    assert plain.startswith(
        "# &lt;script>alert(1)&lt;/script> &amp; | \"quoted\" 'so' \\`code\\` \\*bold\\* \\[link\\]"
    )
    assert all(line.count("|") - line.count("\\|") in (2, 3) for line in plain.split("\n")[-4:] if line[:1] == "|")


def test_errors_are_marked_and_coloured() -> None:
    sections = aligned("one two three", "one too three four")
    assert "| one [two→too] three [+four] |" in to_markdown("t", sections)
    page = Page(to_html("t", sections))
    assert page.text.endswith("one [two→too] three [+four]")
    marks = [attributes for tag, attributes in page.tags if tag == "bdi" and "class" in attributes]
    assert [mark["class"] for mark in marks] == ["substitution", "insertion"]
    assert all(mark["dir"] == "ltr" for mark in marks)
    assert "[−two]" in Page(to_html("t", aligned("one two", "one"))).text


@pytest.mark.parametrize(
    ("reference", "runs"), [("שלום עולם", "rtl"), ("音 楽", "ltr"), ("مرحبا", "rtl"), ("1", "ltr")]
)
def test_letters_of_any_script_are_kept_and_run_their_way(reference: str, runs: str) -> None:
    sections = aligned(reference, f"{reference} x")
    page = Page(to_html("t", sections))
    assert f"{reference} [+x]" in page.text
    assert ("td", {"dir": runs}) in page.tags
    assert f"{reference} [+x]" in to_markdown("t", sections)


def test_empty_texts_are_an_empty_alignment() -> None:
    assert Alignment.of("", "") == Alignment(pairs=(), rest=0, rest_wrong=0)
    assert "[+x]" in Page(to_html("t", aligned("", "x"))).text


@pytest.mark.parametrize("hypothesis", ["x" * 1_000_000, "wrong " * 160_000, "one " + "y" * 999_996])
def test_endless_hypotheses_are_cut(hypothesis: str) -> None:
    sections = aligned("one two", hypothesis)
    for page in (to_markdown("t", sections), to_html("t", sections)):
        assert len(page) < 30_000
        assert "…" in page


def test_what_is_cut_is_counted() -> None:
    note = "… (101 further words, 1 of them wrong)"
    assert to_markdown("t", aligned("a " * 300, "a " * 300 + "b")).endswith(f"{note} |\n")
    assert note in Page(to_html("t", aligned("a " * 300, "a " * 300 + "b"))).text


def test_control_characters_and_line_ends_break_nothing() -> None:
    table = Table(header=["id"], rows=[["a\x00b\n| c\x1b\ud800"]])
    sections = [Section(heading="h", blocks=[table])]
    assert to_markdown("t", sections).endswith("| a\ufffdb \\| c\ufffd\ufffd |\n")
    assert Page(to_html("t", sections)).text.endswith("a\ufffdb | c\ufffd\ufffd")


def test_numbers_stand_to_the_right() -> None:
    cells = {"12": True, "1,234": True, "−0.50 %": True, "n/a": True, "3.0 ms": True, "u1": False, "1 to 2": False}
    page = Page(to_html("t", [Section(heading="h", blocks=[Table(header=[], rows=[list(cells)])])]))
    assert [attributes.get("class") == "number" for tag, attributes in page.tags if tag == "td"] == list(cells.values())
