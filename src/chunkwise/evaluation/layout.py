"""A page for people, laid out twice: as Markdown, and as HTML that needs no other file.

Texts may hold any characters: they are escaped here and nowhere else. Alignments are marked in words and, in HTML,
in colours as well, so that nothing is told by colour alone.
"""

import base64
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from chunkwise.evaluation.tables import markdown_table
from chunkwise.evaluation.wer import WordPair, align_words, show_alignment

MARKS = "[spoken→heard] is a substitution, [−spoken] a deletion, [+heard] an insertion."
_WORDS, _CHARACTERS, _TEXT = 200, 80, 1000  # words of an alignment, characters of a word and of any other text

_STYLE = """
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1000px; margin: 2rem auto;
  padding: 0 1rem }
h1 { font-size: 1.5rem; overflow-wrap: anywhere }
h2 { font-size: 1.15rem; margin-top: 2rem; border-bottom: 1px solid #d8dde3 }
div { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .8rem 0 }
th, td { text-align: left; vertical-align: top; padding: .25rem .7rem; border-bottom: 1px solid #e3e6ea;
  overflow-wrap: anywhere }
th { white-space: nowrap }
td.number { text-align: right; white-space: nowrap }
img { max-width: 100%; height: auto }
.substitution { background: #fdeec2; color: #6b4a00 }
.deletion { background: #fbdcd6; color: #8f1f0b; text-decoration: line-through }
.insertion { background: #d9e8fb; color: #0f4380 }
.rest { color: #5b6570 }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """What was said against what was heard, from the beginning on; words that do not fit are counted."""

    pairs: tuple[WordPair, ...]
    rest: int  # further words
    rest_wrong: int  # of those, how many are errors

    @classmethod
    def of(cls, reference: str, hypothesis: str) -> "Alignment":
        """The alignment of two texts.

        >>> Alignment.of("one two", "one too").pairs
        (('one', 'one'), ('two', 'too'))
        """
        pairs = align_words(reference, hypothesis)
        rest = pairs[_WORDS:]
        return cls(
            pairs=tuple((_cut(spoken), _cut(heard)) for spoken, heard in pairs[:_WORDS]),
            rest=len(rest),
            rest_wrong=sum(spoken != heard for spoken, heard in rest),
        )

    @property
    def rest_note(self) -> str:
        """What is not shown; empty where all is."""
        return f" … ({self.rest:,} further words, {self.rest_wrong:,} of them wrong)" if self.rest else ""


Cell = str | Alignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A PNG file's bytes and what they show; Markdown, which cannot hold them, goes without."""

    shows: str
    png: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading, and below it paragraphs (plain texts), tables and pictures."""

    heading: str
    blocks: Sequence[str | Table | Picture]


def to_markdown(title: str, sections: Sequence[Section]) -> str:
    """The page as Markdown.

    >>> print(to_markdown("A <title>", [Section(heading="Errors", blocks=["No errors."])]), end="")
    # A &lt;title>
    <BLANKLINE>
    ## Errors
    <BLANKLINE>
    No errors.
    """
    blocks = [f"# {_markdown(title)}"]
    for section in sections:
        blocks.append(f"## {_markdown(section.heading)}")
        for block in section.blocks:
            match block:
                case Table():
                    rows = [[_markdown_cell(cell) for cell in row] for row in block.rows]
                    blocks.append(markdown_table([_markdown(name) for name in block.header], rows))
                case str():
                    blocks.append(_markdown(block))
                case Picture():
                    pass
    return "\n\n".join(blocks) + "\n"


def to_html(title: str, sections: Sequence[Section]) -> str:
    """The page as one HTML document, with its style and its pictures inside."""
    head = f'<meta charset="utf-8">\n<title>{_html(title)}</title>\n<style>{_STYLE}</style>'
    body = [f"<h1>{_html(title)}</h1>"]
    for section in sections:
        body.append(f"<section>\n<h2>{_html(section.heading)}</h2>")
        body += map(_html_block, section.blocks)
        body.append("</section>")
    lines = ["<!DOCTYPE html>", '<html lang="en">', "<head>", head, "</head>", "<body>", *body, "</body>", "</html>"]
    return "\n".join(lines) + "\n"


def _cut(word: str | None) -> str | None:
    """A word, or its beginning and end; both, because another may begin alike."""
    return word if word is None or len(word) <= _CHARACTERS else f"{word[:60]}…{word[-20:]}"


def _plain(text: str) -> str:
    """A text on one line, without control characters, and cut where it is too long."""
    line = re.sub("[\x00-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", " ".join(text.split()))
    return line if len(line) <= _TEXT else f"{line[:_TEXT]}…"


def _markdown(text: str) -> str:
    """A text in which Markdown sees neither marks nor tags; bars are the table's to escape."""
    return re.sub(r"([\\`*_\[\]~#])", r"\\\1", _plain(text)).replace("&", "&amp;").replace("<", "&lt;")


def _markdown_cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return _markdown(cell)
    escaped: list[WordPair] = [
        (spoken and _markdown(spoken), heard and _markdown(heard)) for spoken, heard in cell.pairs
    ]
    return show_alignment(escaped) + cell.rest_note


def _html(text: str) -> str:
    return escape(_plain(text))


def _html_block(block: str | Table | Picture) -> str:
    match block:
        case Table():
            header = "".join(f'<th scope="col">{_html(name)}</th>' for name in block.header)
            rows = "\n".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in block.rows)
            return f"<div><table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
        case Picture():
            data = base64.b64encode(block.png).decode("ascii")
            return f'<p><img alt="{_html(block.shows)}" src="data:image/png;base64,{data}"></p>'
        case str():
            return f"<p>{_html(block)}</p>"


def _html_cell(cell: Cell) -> str:
    if isinstance(cell, str):
        number = re.fullmatch(r"n/a|[-+−]?[\d,.]+( %| ms)?", cell)
        return f'<td class="number">{_html(cell)}</td>' if number else f"<td><bdi>{_html(cell)}</bdi></td>"
    words = " ".join(_html_pair(spoken, heard) for spoken, heard in cell.pairs)
    rest = f'<span class="rest">{_html(cell.rest_note)}</span>' if cell.rest else ""
    return f'<td dir="{_direction(cell.pairs)}">{words}{rest}</td>'


def _html_pair(spoken: str | None, heard: str | None) -> str:
    """A pair with the marks of `show_alignment`; each mark runs from left to right, whatever its words do."""
    if spoken == heard:
        return _html(spoken or "")
    kind = "insertion" if spoken is None else "deletion" if heard is None else "substitution"
    before, between = "" if spoken else "+", "→" if spoken and heard else ""
    words = [f"<bdi>{_html(word)}</bdi>" for word in (spoken, heard) if word]
    return f'<bdi dir="ltr" class="{kind}">[{"−" if heard is None else before}{between.join(words)}]</bdi>'


def _direction(pairs: Sequence[WordPair]) -> str:
    """How an utterance's words run: as its first letter does."""
    letters = (unicodedata.bidirectional(letter) for pair in pairs for word in pair if word for letter in word)
    first = next((kind for kind in letters if kind in ("L", "R", "AL")), "L")
    return "ltr" if first == "L" else "rtl"
