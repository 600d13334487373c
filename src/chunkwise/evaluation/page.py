"""The report of one evaluation for people: `report.md`, and `report.html` with the plots inside.

Both depend on the result alone, not on when, how fast or on how many ranks it came about; only the computing time
of streams is measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from chunkwise.evaluation.confusions import Confusion, most_frequent
from chunkwise.evaluation.layout import MARKS, Alignment, Picture, Section, Table, to_html, to_markdown
from chunkwise.evaluation.report import hardest_utterances
from chunkwise.evaluation.result_plots import SpeakerRate, plot_delays, plot_errors, plot_speakers
from chunkwise.evaluation.run_folder import StoredMetrics
from chunkwise.evaluation.significance import Block, Interval, block_of, wer_interval
from chunkwise.evaluation.spelling import Spelling
from chunkwise.evaluation.streamed import NAMES
from chunkwise.evaluation.tables import show_interval, show_rate
from chunkwise.evaluation.tally import Evaluation, ScoredUtterance
from chunkwise.evaluation.typed_json import write_atomically
from chunkwise.streaming.latency import Latency

HARDEST, CONFUSIONS, SPEAKERS, DRAWN_SPEAKERS = 20, 15, 100, 40
"""At most so many utterances, confusions of a kind, rows and points of speakers are shown."""

_SPEAKER_RESAMPLES = 2_000
_KINDS = ("substitutions", "deletions", "insertions")


def write_page(
    folder: Path, title: str, evaluation: Evaluation, metrics: StoredMetrics, spelling: Spelling | None = None
) -> None:
    """Write both files, each whole or not at all, of an evaluation that holds its utterances."""
    utterances = evaluation.utterances
    assert utterances is not None, "only rank 0 holds the utterances"
    sections = [
        _rates(evaluation, utterances, metrics.wer_interval),
        _hardest(utterances),
        _confusions(utterances),
        *_speakers(utterances),
        *([] if spelling is None or not spelling.misspellings else [_spelling(spelling)]),
        *([] if evaluation.latency is None else [_latency(evaluation.latency)]),
    ]
    write_atomically(folder / "report.html", to_html(title, sections))
    write_atomically(folder / "report.md", to_markdown(title, sections))


def _rates(evaluation: Evaluation, utterances: Sequence[ScoredUtterance], interval: Interval | None) -> Section:
    counts = evaluation.counts
    rows = [
        ["word errors (WER)", counts.word_errors, counts.words, _interval_and_block(utterances, interval)],
        *([f"– {name}", getattr(counts, name), counts.words, ""] for name in _KINDS),
        ["character errors (CER)", counts.character_errors, counts.characters, ""],
        ["utterances with an error", counts.sentence_errors, counts.utterances, ""],
    ]
    shown = [
        [name, f"{some:,}", f"{of:,}", show_rate(some / of if of else None), note] for name, some, of, note in rows
    ]
    notes = [f"{counts.utterances:,} utterances, {evaluation.audio_s:,.1f} s of audio."]
    if evaluation.reference_tokens:
        unknown = f" ({evaluation.unknown_tokens:,} unknown)" if evaluation.unknown_tokens else ""
        emitted = f"{evaluation.hypothesis_tokens:,} emitted"
        notes.append(f"{evaluation.reference_tokens:,} tokens in the references{unknown}, {emitted}.")
    if evaluation.loss_per_token is not None:
        notes.append(f"The loss is {evaluation.loss_per_token:.4f} nats per token.")
    table = Table(header=["", "count", "of", "rate", "95 % interval"], rows=shown)
    blocks: list[str | Table | Picture] = [" ".join(notes), table]
    if counts.words:
        shows = "Left: utterances by their word errors. Right: WER by the words of the reference."
        blocks.append(Picture(shows=shows, png=plot_errors(utterances)))
    return Section(heading="Error rates", blocks=blocks)


def _interval_and_block(utterances: Sequence[ScoredUtterance], interval: Interval | None) -> str:
    """The interval, and what its resamples drew."""
    if interval is None:
        return "n/a"
    block = block_of(utterances)
    drawn = len({row.speaker for row in utterances}) if block is Block.speaker else len(utterances)
    return f"{show_interval(interval)} (over {drawn:,} {block}{'' if drawn == 1 else 's'})"


def _hardest(utterances: Sequence[ScoredUtterance]) -> Section:
    hardest = hardest_utterances(utterances, HARDEST)
    if not hardest:
        return Section(heading="Hardest utterances", blocks=["No errors."])
    rows = [
        [row.id, f"{row.word_errors:,}", _utterance_rate(row), Alignment.of(row.reference, row.hypothesis)]
        for row in hardest
    ]
    table = Table(header=["id", "errors", "WER", "alignment"], rows=rows)
    return Section(heading="Hardest utterances", blocks=[f"Those with the most word errors. {MARKS}", table])


def _utterance_rate(row: ScoredUtterance) -> str:
    words = len(row.reference.split())
    return show_rate(row.word_errors / words if words else None)


def _confusions(utterances: Sequence[ScoredUtterance]) -> Section:
    found = most_frequent(utterances, CONFUSIONS)
    kinds = (
        (["spoken", "heard instead", "times"], found.substitutions),
        (["spoken, not heard", "times"], found.deletions),
        (["heard, not spoken", "times"], found.insertions),
    )
    blocks = [Table(header=header, rows=[_confusion_row(row) for row in rows]) for header, rows in kinds if rows]
    return Section(heading="Most frequent confusions", blocks=blocks or ["No errors."])


def _confusion_row(confusion: Confusion) -> list[str]:
    return [word for word in (confusion.spoken, confusion.heard) if word is not None] + [f"{confusion.count:,}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Speaker:
    """The utterances of one speaker; `None` names those that name nobody."""

    name: str | None
    rows: Sequence[ScoredUtterance]

    @property
    def label(self) -> str:
        return "(not named)" if self.name is None else self.name

    @property
    def words(self) -> int:
        return sum(len(row.reference.split()) for row in self.rows)

    @property
    def wer(self) -> float | None:
        words = self.words
        return sum(row.word_errors for row in self.rows) / words if words else None

    @property
    def interval(self) -> Interval | None:
        """Over the utterances; of fewer than two there is none."""
        return wer_interval(self.rows, _SPEAKER_RESAMPLES) if len(self.rows) > 1 else None


def _speakers(utterances: Sequence[ScoredUtterance]) -> list[Section]:
    """A table and a plot, the highest WER first; nothing where nobody is named."""
    by_name: dict[str | None, list[ScoredUtterance]] = {}
    for row in utterances:
        by_name.setdefault(row.speaker, []).append(row)
    if not by_name.keys() - {None}:
        return []
    everyone = sorted((_Speaker(name=name, rows=rows) for name, rows in by_name.items()), key=_worst_first)
    shown = [(speaker, speaker.interval) for speaker in everyone[:SPEAKERS]]
    rates = [
        SpeakerRate(name=speaker.label, wer=speaker.wer, interval=interval)
        for speaker, interval in shown[:DRAWN_SPEAKERS]
        if speaker.wer is not None
    ]
    note = f"The {len(shown)} of {len(everyone):,} with the highest WER. " if len(shown) < len(everyone) else ""
    header = ["speaker", "utterances", "words", "S", "D", "I", "WER", "95 % interval"]
    blocks: list[str | Table | Picture] = [
        f"{note}The intervals are over the utterances of a speaker.",
        Table(header=header, rows=[_speaker_row(speaker, interval) for speaker, interval in shown]),
    ]
    if rates:
        blocks.append(Picture(shows="WER by speaker, with its interval.", png=plot_speakers(rates)))
    return [Section(heading="Speakers", blocks=blocks)]


def _worst_first(speaker: _Speaker) -> tuple[float, bool, str]:
    wer = speaker.wer
    return -1.0 * (-1.0 if wer is None else wer), speaker.name is None, speaker.label


def _speaker_row(speaker: _Speaker, interval: Interval | None) -> list[str]:
    return [
        speaker.label,
        f"{len(speaker.rows):,}",
        f"{speaker.words:,}",
        *(f"{sum(getattr(row, kind) for row in speaker.rows):,}" for kind in _KINDS),
        show_rate(speaker.wer),
        "n/a" if interval is None else show_interval(interval),
    ]


def _spelling(spelling: Spelling) -> Section:
    misspellings = spelling.misspellings
    shown = misspellings[:HARDEST]
    first = f"The first {len(shown)}. " if len(shown) < len(misspellings) else ""
    note = (
        f"{len(misspellings):,} transcripts do not come back from the tokenizer, whatever the model hears: "
        f"{spelling.oov_words:,} of {spelling.words:,} words are out of its vocabulary "
        f"({show_rate(spelling.oov_rate)}). {first}{MARKS}"
    )
    rows = [[row.id, Alignment.of(row.reference, row.spelled)] for row in shown]
    table = Table(header=["id", "transcript, and what comes back"], rows=rows)
    return Section(heading="Transcripts that the model cannot spell", blocks=[note, table])


def _latency(latency: Latency) -> Section:
    delays = {NAMES[field.name]: getattr(latency, field.name) for field in fields(latency)}
    rows = []
    for name, kind in delays.items():
        summary = kind.summary()
        times = (summary[key] for key in ("mean", "p50", "p90", "p99"))
        rows.append([name, f"{summary['count']:,}", *("n/a" if time is None else f"{time:.1f}" for time in times)])
    table = Table(header=["delay, in ms", "count", "mean", "p50", "p90", "p99"], rows=rows)
    blocks: list[str | Table | Picture] = [table]
    if any(kind.counts for kind in delays.values()):
        blocks.append(
            Picture(shows="The share of each kind of delay that is at most so long.", png=plot_delays(delays))
        )
    return Section(heading="Latency", blocks=blocks)
