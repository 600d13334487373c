"""What a result is, and how it is written and read: `experiments/NNN_slug/record.json` and the board over them.

`python -m chunkwise.records` rebuilds `experiments/README.md` from the records, `--check` fails where it differs,
and `add ID RUN...` makes a record from run folders. A row without commit and seeds is not a result.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from enum import StrEnum
from math import isfinite
from pathlib import Path
from statistics import fmean, stdev

from chunkwise.evaluation.run_folder import RunFacts, StoredEvaluation
from chunkwise.evaluation.run_group import read_group
from chunkwise.evaluation.tables import markdown_table
from chunkwise.evaluation.typed_json import read_json, to_json, write_atomically

HEADINGS = ("Question", "Change", "Result", "Reading", "Next")
"""The sections of the README.md beside each record."""

OPENING = """# Experiments

One folder per experiment: `record.json` is the result, `README.md` says what it means; rejected ones stay.
Written from the records by `python -m chunkwise.records`: do not edit this page.

"""


class Verdict(StrEnum):
    """What became of an experiment; a rejected one stays."""

    kept = "kept"
    rejected = "rejected"
    baseline = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """The data of a result."""

    name: str
    train_hours: float
    test_utterances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What a result was trained on, and for how long per run."""

    device: str
    torch: str
    train_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Error rates of one split in one context, over the record's seeds.

    A split is written `test`, or `test:jackson` where the speaker jackson was held out of the training.
    """

    split: str
    context: str  # "full", or the chunk: "640ms"
    decoding: str
    wer: tuple[float, ...]  # fractions, one per seed
    substitutions: int  # summed over seeds, as are deletions and insertions
    deletions: int
    insertions: int
    algorithmic_latency_ms: float | None  # chunk and lookahead; null in full context
    rtf: float | None  # mean over seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One experiment and its result."""

    id: str  # NNN_slug, the name of its folder
    date: str  # YYYY-MM-DD
    commit: str
    dirty: bool  # whether the code differed from the commit
    command: str
    seeds: tuple[int, ...]
    corpus: Corpus
    parameters: int
    hardware: Hardware
    baseline: str | None  # id of the record it is compared with
    verdict: Verdict
    metrics: tuple[Metric, ...]

    def __post_init__(self) -> None:
        """Refuse what is not a result."""
        _require(re.fullmatch(r"\d{3}_[a-z0-9_]+", self.id), f"id={self.id} must read NNN_slug; try 001_first")
        _require(re.fullmatch(r"\d{4}-\d\d-\d\d", self.date), f"date={self.date} must read YYYY-MM-DD")
        _require(re.fullmatch(r"[0-9a-f]{7,40}", self.commit), f"commit={self.commit} must be 7 to 40 hex digits")
        _require(self.seeds, "seeds=[] must hold at least one seed")
        _require(len(set(self.seeds)) == len(self.seeds), f"seeds={list(self.seeds)} must differ from each other")
        _require(self.parameters > 0, f"parameters={self.parameters} must be more than 0")
        _require(self.metrics, "metrics=[] must hold at least one row")
        is_baseline = self.verdict is Verdict.baseline
        _require(not (is_baseline and self.baseline), f"baseline={self.baseline} must be null where verdict=baseline")
        for index, metric in enumerate(self.metrics):
            _check_metric(metric, f"metrics[{index}]", len(self.seeds))


def _check_metric(metric: Metric, where: str, num_seeds: int) -> None:
    rates = list(metric.wer)
    _require(len(rates) == num_seeds, f"{where}.wer={rates} must hold one rate per seed, {num_seeds} in all")
    _require(all(isfinite(r) and r >= 0 for r in rates), f"{where}.wer={rates} must be finite fractions, 0 or more")
    for name in ("substitutions", "deletions", "insertions"):
        count = getattr(metric, name)
        _require(count >= 0, f"{where}.{name}={count} must be 0 or more")


def _require(holds: object, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def read_record(path: Path) -> Record:
    """The record in a `record.json`, whose folder bears its id."""
    record = read_json(Record, path)
    _require(record.id == path.parent.name, f"{path}: id={record.id} must be its folder's name, {path.parent.name}")
    return record


def write_record(folder: Path, record: Record) -> Path:
    """Write a record to its place under the experiments folder, and say where that is."""
    path = folder / record.id / "record.json"
    write_atomically(path, to_json(asdict(record)))
    return path


def read_records(folder: Path) -> list[Record]:
    """All records under the experiments folder, by id; each has its README.md and a baseline that exists."""
    paths = sorted(folder.glob("*/record.json"))
    records = [read_record(path) for path in paths]
    ids = {record.id for record in records}
    for path, record in zip(paths, records, strict=True):
        known = record.baseline is None or record.baseline in ids
        _require(known, f"{path}: baseline={record.baseline} is no record; the records are {', '.join(sorted(ids))}")
        readme = path.with_name("README.md")
        _require(readme.is_file(), f"{readme} is missing; write it with the headings {', '.join(HEADINGS)}")
        found = re.findall(r"^##? +(\w+)", readme.read_text(encoding="utf-8"), flags=re.MULTILINE)
        missing = [heading for heading in HEADINGS if heading not in found]
        _require(not missing, f"{readme} has no heading {', '.join(missing)}")
    return records


def record_from_runs(id: str, runs: Sequence[Path], verdict: Verdict, baseline: str | None = None) -> Record:
    """The record of one experiment from its run folders.

    The runs share one commit and one config, except for the seed and for a held-out speaker; each has `run.json`
    and the same evaluations.
    """
    group = read_group(runs)
    first = group.facts[0]
    corpus, hours, train_s = first.setting("data.corpus"), group.mean("train_hours"), group.mean("train_s")
    return Record(
        id=id,
        date=date.today().isoformat(),
        commit=first.commit,
        dirty=any(facts.dirty for facts in group.facts),
        command=first.command,
        seeds=group.seeds,
        corpus=Corpus(name=corpus, train_hours=hours, test_utterances=group.test_utterances),
        parameters=first.parameters,
        hardware=Hardware(device=first.device, torch=first.torch, train_s=train_s),
        baseline=baseline,
        verdict=verdict,
        metrics=tuple(_metric(key, by_seed, first) for key, by_seed in group.scores.items()),
    )


def _metric(key: tuple[str, str], by_seed: Sequence[StoredEvaluation], facts: RunFacts) -> Metric:
    split, context = key
    chunk = re.match(r"(\d+)ms", context)
    factors = [stored.timing.rtf for stored in by_seed if stored.timing.rtf is not None]
    return Metric(
        split=split,
        context=context,
        decoding=facts.setting("decoding.kind"),
        wer=tuple(stored.metrics.wer for stored in by_seed if stored.metrics.wer is not None),
        substitutions=sum(stored.metrics.substitutions for stored in by_seed),
        deletions=sum(stored.metrics.deletions for stored in by_seed),
        insertions=sum(stored.metrics.insertions for stored in by_seed),
        algorithmic_latency_ms=int(chunk[1]) + facts.lookahead_ms if chunk else None,
        rtf=round(fmean(factors), 4) if factors else None,
    )


def board(records: Sequence[Record]) -> str:
    """The records as one Markdown page; the rates of several seeds or held-out speakers as mean ± deviation."""
    header = ["record", "corpus", "parameters", "seeds", "WER", "training", "baseline", "verdict", "commit"]
    rows = [
        [
            f"[{record.id}]({record.id}/README.md)",
            record.corpus.name,
            f"{record.parameters:,}",
            ", ".join(map(str, record.seeds)),
            "<br>".join(_rates(record)),
            f"{record.hardware.train_s:.0f} s on {record.hardware.device}",
            record.baseline or "·",
            record.verdict.value,
            f"`{record.commit[:9]}`" + (" + changes" if record.dirty else ""),
        ]
        for record in sorted(records, key=lambda record: record.id)
    ]
    return OPENING + (markdown_table(header, rows) if rows else "No record yet.") + "\n"


def _rates(record: Record) -> list[str]:
    """One line per split and context."""
    groups: dict[str, list[float]] = {}
    for metric in record.metrics:
        decoding = "" if metric.decoding == "greedy" else f" {metric.decoding}"
        groups.setdefault(f"{metric.split.split(':')[0]} {metric.context}{decoding}", []).extend(metric.wer)
    return [f"{name}: {_show_rates(rates)}" for name, rates in groups.items()]


def _show_rates(rates: Sequence[float]) -> str:
    percents = [100 * rate for rate in rates]
    if len(percents) == 1:
        return f"{percents[0]:.2f} %"
    return f"{fmean(percents):.2f} ± {stdev(percents):.2f} % (n={len(percents)})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Rebuild or check the board, or add a record; the exit code is 1 where something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m chunkwise.records", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("experiments"), help="where the records are")
    parser.add_argument("--check", action="store_true", help="change nothing; fail where the board is out of date")
    add = parser.add_subparsers(dest="action").add_parser("add", help="make a record from run folders")
    add.add_argument("id", help="NNN_slug")
    add.add_argument("runs", type=Path, nargs="+", help="run folders, evaluated")
    add.add_argument("--verdict", type=Verdict, choices=list(Verdict), required=True)
    add.add_argument("--baseline", help="id of the record it is compared with")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.action == "add":
            record = record_from_runs(chosen.id, chosen.runs, chosen.verdict, chosen.baseline)
            print(f"wrote {write_record(chosen.folder, record)}; write README.md beside it, then rebuild the board")
        else:
            _rebuild(chosen.folder, check=chosen.check)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _rebuild(folder: Path, check: bool) -> None:
    readme = folder / "README.md"
    page = board(read_records(folder))
    if not check:
        write_atomically(readme, page)
    elif not readme.is_file() or readme.read_text(encoding="utf-8") != page:
        raise ValueError(f"{readme} differs from the records; run python -m chunkwise.records")


if __name__ == "__main__":
    sys.exit(main())
