"""The sums of an evaluation: integers on each rank, added over ranks, divided once."""

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor

from chunkwise.evaluation.wer import ErrorCounts, count_errors
from chunkwise.streaming.latency import Latency
from chunkwise.text.normalisation import normalise
from chunkwise.text.tokenizer import UNKNOWN
from chunkwise.typing import Seconds, World


@dataclass(frozen=True, slots=True)
class ScoredUtterance:
    """What was said (normalised), what was heard (an unknown piece is visible as `⁇`), the word errors, and who spoke.

    Lines that were written before the speaker was kept are read without one.
    """

    id: str
    reference: str
    hypothesis: str
    substitutions: int
    deletions: int
    insertions: int
    speaker: str | None = None  # where the corpus names one for the whole utterance

    def to_line(self) -> str:
        """The utterance as one JSON line of `hypotheses.jsonl`."""
        return json.dumps({field.name: getattr(self, field.name) for field in fields(self)}, ensure_ascii=False)

    @classmethod
    def from_line(cls, line: str) -> "ScoredUtterance":
        """The utterance that `to_line` wrote."""
        return cls(**json.loads(line))

    @property
    def word_errors(self) -> int:
        """Substitutions, deletions and insertions together."""
        return self.substitutions + self.deletions + self.insertions


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result for a whole set of utterances; all of it but `utterances` is known on every rank."""

    counts: ErrorCounts
    audio_s: Seconds
    compute_s: Seconds  # features, encoder and search, added over ranks; reading audio is not in it
    utterances: tuple[ScoredUtterance, ...] | None  # sorted by id, on rank 0; `None` elsewhere
    loss_per_token: float | None = None  # nats; `None` where no loss was asked for, or none is finite
    latency: Latency | None = None  # of streams, on rank 0; `None` elsewhere, and where nothing was streamed
    utterances_without_loss: int = 0  # too short for their transcript, hence outside `loss_per_token`
    reference_tokens: int = 0  # the tokenizer's units in the references
    unknown_tokens: int = 0  # of those, how many stand for what it cannot spell
    hypothesis_tokens: int = 0  # emitted

    @property
    def rtf(self) -> float | None:
        """Real-time factor: seconds of computing per second of audio; `None` without audio."""
        return self.compute_s / self.audio_s if self.audio_s else None


@dataclass(slots=True)
class Tally:
    """One rank's running sums: integers only, so that adding them in any order gives the same."""

    errors: ErrorCounts = ErrorCounts()
    samples: int = 0
    compute_us: int = 0
    loss_unats: int = 0  # millionths of a nat
    loss_tokens: int = 0
    without_loss: int = 0
    reference_tokens: int = 0
    unknown_tokens: int = 0
    hypothesis_tokens: int = 0
    lines: list[str] = field(default_factory=list)
    latency: Latency = field(default_factory=Latency)

    def add_texts(
        self,
        ids: Sequence[str],
        references: Sequence[str],
        hypotheses: Sequence[str],
        speakers: Sequence[str | None],
    ) -> None:
        """Score utterances."""
        for id, reference, hypothesis, speaker in zip(ids, references, hypotheses, speakers, strict=True):
            errors = count_errors(reference, hypothesis)
            self.errors += errors
            word_errors = errors.substitutions, errors.deletions, errors.insertions
            self.lines.append(ScoredUtterance(id, normalise(reference), hypothesis, *word_errors, speaker).to_line())

    def add_losses(self, losses: Float[Tensor, " batch"], tokens: Int[Tensor, " batch"]) -> None:
        """Add the finite losses; audio too short for its transcript has none, and is counted."""
        finite = torch.isfinite(losses)
        self.loss_unats += int((1e6 * losses[finite].double()).round().long().sum())
        self.loss_tokens += int(tokens[finite].sum())
        self.without_loss += int((~finite).sum())

    def add_tokens(self, references: Int[Tensor, " tokens"], hypotheses: Sequence[Sequence[int]]) -> None:
        """Count the tokens of all references together, and those that were emitted."""
        self.reference_tokens += len(references)
        self.unknown_tokens += int((references == UNKNOWN).sum())
        self.hypothesis_tokens += sum(map(len, hypotheses))

    def include(self, other: "Tally") -> None:
        """Add the sums of other utterances."""
        self.errors += other.errors
        self.samples += other.samples
        self.compute_us += other.compute_us
        self.loss_unats += other.loss_unats
        self.loss_tokens += other.loss_tokens
        self.without_loss += other.without_loss
        self.reference_tokens += other.reference_tokens
        self.unknown_tokens += other.unknown_tokens
        self.hypothesis_tokens += other.hypothesis_tokens
        self.lines += other.lines
        self.latency.include(other.latency)

    def to_text(self) -> str:
        """The sums as JSON."""
        sums = {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps({**sums, "errors": astuple(self.errors), "latency": self.latency.to_text()})

    @classmethod
    def from_text(cls, text: str) -> "Tally":
        """The sums that `to_text` wrote."""
        sums = json.loads(text)
        errors, latency = ErrorCounts(*sums["errors"]), Latency.merged([sums["latency"]])
        return cls(**{**sums, "errors": errors, "latency": latency})

    def merge(self, rate_hz: int, world: World) -> Evaluation:
        """All ranks' sums as one result; every rank calls this."""
        names = [field.name for field in fields(self) if isinstance(getattr(self, field.name), int)]
        mine = [*astuple(self.errors), *(getattr(self, name) for name in names)]
        totals = world.sum_counts(torch.tensor(mine, dtype=torch.int64, device=world.device)).tolist()
        num_errors = len(fields(ErrorCounts))
        sums = dict(zip(names, totals[num_errors:], strict=True))
        lines = world.gather_texts(self.lines)
        latencies = world.gather_texts([self.latency.to_text()])
        latency = None if latencies is None else Latency.merged(latencies)
        scored = None if lines is None else sorted(map(ScoredUtterance.from_line, lines), key=lambda row: row.id)
        return Evaluation(
            counts=ErrorCounts(*totals[:num_errors]),
            audio_s=sums["samples"] / rate_hz,
            compute_s=sums["compute_us"] / 1e6,
            utterances=None if scored is None else tuple(scored),
            loss_per_token=sums["loss_unats"] / 1e6 / sums["loss_tokens"] if sums["loss_tokens"] else None,
            latency=latency if latency is not None and latency.compute.counts else None,
            utterances_without_loss=sums["without_loss"],
            reference_tokens=sums["reference_tokens"],
            unknown_tokens=sums["unknown_tokens"],
            hypothesis_tokens=sums["hypothesis_tokens"],
        )
