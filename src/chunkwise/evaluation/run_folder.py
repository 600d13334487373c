"""What a run folder says about its run: `run.json`, and `evaluations/<split>-<context>/metrics.json`."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from chunkwise.evaluation.config import EvalPath
from chunkwise.evaluation.typed_json import read_json, to_json, write_atomically
from chunkwise.evaluation.wer import ErrorCounts
from chunkwise.models.context import ChunkContext


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """`run.json`: the facts of a training run that a record needs and the config alone does not tell."""

    command: str
    commit: str
    dirty: bool  # whether the code differed from the commit
    config: dict[str, Any]  # resolved, as plain values
    parameters: int
    train_s: float
    train_hours: float  # of audio
    device: str  # as people say it: "2x CPU"
    torch: str  # version
    lookahead_ms: float  # what features and subsampling see beyond a chunk's border

    def write(self, run: Path) -> None:
        """Write the facts into the run's folder."""
        write_atomically(run / "run.json", to_json(asdict(self)))

    @classmethod
    def read(cls, run: Path) -> "RunFacts":
        """The facts in a run's folder."""
        return read_json(cls, run / "run.json")

    def setting(self, key: str) -> Any:
        """The config's value under a dotted key.

        >>> facts = RunFacts(command="", commit="", dirty=False, config={"data": {"corpus": "fsdd"}}, parameters=1,
        ...     train_s=1.0, train_hours=1.0, device="", torch="", lookahead_ms=0.0)
        >>> facts.setting("data.corpus")
        'fsdd'
        """
        node: Any = self.config
        for name in key.split("."):
            if not isinstance(node, dict) or name not in node:
                raise ValueError(f"run.json: config has no {key}; write the whole resolved config there")
            node = node[name]
        return node


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMetrics:
    """`metrics.json`: the integers first, then what follows from them; rates are fractions, `None` if undefined."""

    utterances: int
    words: int
    substitutions: int
    deletions: int
    insertions: int
    sentence_errors: int
    characters: int
    character_errors: int
    wer: float | None
    cer: float | None
    audio_s: float
    wer_interval: tuple[float, float] | None = None  # of 95 %, by the bootstrap; older evaluations have none
    reference_tokens: int = 0  # of the tokenizer; older evaluations did not count them
    unknown_tokens: int = 0  # in the references
    hypothesis_tokens: int = 0

    @property
    def counts(self) -> ErrorCounts:
        """The integers alone."""
        return ErrorCounts(**{field.name: getattr(self, field.name) for field in fields(ErrorCounts)})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTiming:
    """`timing.json`: what differs from one evaluation to the next, and hence does not stand in `metrics.json`."""

    compute_s: float  # features, encoder and search, added over ranks
    rtf: float | None  # seconds of computing per second of audio; `None` without audio


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvaluation:
    """An evaluation's folder."""

    metrics: StoredMetrics
    timing: StoredTiming


def evaluation_name(split: str, contexts: str, path: EvalPath) -> str:
    """The name of an evaluation's folder, from the label of its context, or `grid`.

    >>> evaluation_name("test", "640ms", EvalPath.streaming)
    'test-640ms-streaming'
    """
    return f"{split}-{contexts}{'-streaming' if path is EvalPath.streaming else ''}"


def evaluation_folder(run: Path, split: str, context: ChunkContext) -> Path:
    """Where a run keeps the masked evaluation of a split under a context.

    >>> evaluation_folder(Path("run"), "test", ChunkContext(chunk_frames=16, left_chunks=None)).as_posix()
    'run/evaluations/test-640ms'
    """
    return run / "evaluations" / evaluation_name(split, context.label, EvalPath.masked)


def read_evaluations(run: Path) -> dict[tuple[str, str], StoredEvaluation]:
    """All evaluations that a run folder holds, by (split, context label), in the order of their names.

    Those of a grid are among them; where a context was also evaluated by itself, that counts.
    """
    files = [file for folder in ("*-grid*/*-*", "*-*") for file in (run / "evaluations").glob(f"{folder}/metrics.json")]
    folders = {file.parent.name: file.parent for file in files}
    if not folders:
        raise FileNotFoundError(f"{run / 'evaluations'} holds no SPLIT-CONTEXT/metrics.json; evaluate the run first")
    found = {}
    for name, folder in sorted(folders.items()):
        split, context = name.split("-", 1)
        metrics = read_json(StoredMetrics, folder / "metrics.json")
        found[split, context] = StoredEvaluation(
            metrics=metrics, timing=read_json(StoredTiming, folder / "timing.json")
        )
    return found


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; blank lines are passed over."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}: line {number} is not JSON ({error}); remove it") from None
    return rows
