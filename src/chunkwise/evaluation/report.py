"""The report of a run for people (`report.md`) and for programs (`summary.json`)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chunkwise.evaluation.tables import markdown_table, show_rate
from chunkwise.evaluation.tally import ScoredUtterance
from chunkwise.evaluation.typed_json import to_json, write_atomically
from chunkwise.evaluation.wer import ErrorCounts, align_words, show_alignment
from chunkwise.typing import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedTranscript:
    """A recording recognised piece by piece: what was shown, and after how much audio."""

    name: str
    reference: str
    partials: Sequence[tuple[Seconds, str]]  # audio heard so far, and the text so far
    final: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What `write_report` lays out."""

    title: str
    summary: str  # one paragraph: what was trained on what
    errors: Mapping[str, ErrorCounts]  # by context label, in the order of the table
    pages: Mapping[str, Path]  # the evaluations' own reports, inside the report's folder
    curve: Path  # pictures, there too
    spectrogram: Path
    streamed: StreamedTranscript
    hardest: Sequence[ScoredUtterance] = ()
    parameters: int
    train_s: Seconds
    total_s: Seconds


def write_report(folder: Path, report: Report) -> None:
    """Write `report.md` and `summary.json`; the pictures must be there already."""
    for picture in (report.curve, report.spectrogram):
        if not picture.is_file():
            raise FileNotFoundError(f"{picture} is missing, and report.md shows it; plot it first")
    sections = [
        f"# {report.title}\n\n{report.summary}",
        _error_rates(folder, report),
        _training(folder, report),
        _streamed(folder, report),
    ]
    if report.hardest:
        sections.append(_hardest(report.hardest))
    write_atomically(folder / "summary.json", to_json(summary(report)))
    write_atomically(folder / "report.md", "\n\n".join(sections) + "\n")


def summary(report: Report) -> dict[str, object]:
    """The content of `summary.json`; word error rates in percent, `None` where undefined."""
    rates = {label: counts.wer for label, counts in report.errors.items()}
    return {
        "wer": {label: None if rate is None else round(100 * rate, 4) for label, rate in rates.items()},
        "train_s": round(report.train_s, 1),
        "total_s": round(report.total_s, 1),
        "parameters": report.parameters,
    }


def hardest_utterances(utterances: Iterable[ScoredUtterance], limit: int = 5) -> tuple[ScoredUtterance, ...]:
    """The utterances with the most word errors, at most `limit`; none of them is right."""
    wrong = [utterance for utterance in utterances if utterance.word_errors]
    return tuple(sorted(wrong, key=lambda utterance: (-utterance.word_errors, utterance.id))[:limit])


def _error_rates(folder: Path, report: Report) -> str:
    rows = [
        [
            label,
            f"**{show_rate(counts.wer)}**",
            *map(str, (counts.substitutions, counts.deletions, counts.insertions, counts.words)),
            show_rate(counts.cer),
            f"{counts.sentence_errors} / {counts.utterances}",
        ]
        for label, counts in report.errors.items()
    ]
    pages = ", ".join(f"[{label}]({_link(folder, page)})" for label, page in report.pages.items())
    header = ["context", "WER", "substitutions", "deletions", "insertions", "words", "CER", "utterances wrong"]
    explanation = "One set of weights; the context says how long the encoder's chunks are.\n\n"
    more = f"\n\nMore of each, with intervals, confusions and plots: {pages}." if pages else ""
    return "## Word error rates\n\n" + explanation + markdown_table(header, rows) + more


def _training(folder: Path, report: Report) -> str:
    return (
        f"## Training\n\n{report.parameters:,} parameters, trained in {report.train_s:.0f} s; "
        f"{report.total_s:.0f} s in all.\n\n![Training curve]({_link(folder, report.curve)})"
    )


def _streamed(folder: Path, report: Report) -> str:
    streamed = report.streamed
    rows = [[f"{heard_s:.2f} s", text or "·"] for heard_s, text in streamed.partials]
    verdict = show_alignment(align_words(streamed.reference, streamed.final))
    return (
        f"## A recording, streamed\n\n`{streamed.name}`, with the time at which each token was emitted:\n\n"
        f"![Spectrogram with emission times]({_link(folder, report.spectrogram)})\n\n"
        f"- said: {streamed.reference}\n- recognised: {streamed.final}\n- aligned: {verdict}\n\n"
        + markdown_table(["audio heard", "partial result"], rows)
    )


def _hardest(utterances: Sequence[ScoredUtterance]) -> str:
    rows = [
        [f"`{row.id}`", str(row.word_errors), show_alignment(align_words(row.reference, row.hypothesis))]
        for row in utterances
    ]
    return "## The hardest utterances\n\n" + markdown_table(["id", "errors", "alignment"], rows)


def _link(folder: Path, file: Path) -> str:
    return file.relative_to(folder).as_posix().replace(" ", "%20")
