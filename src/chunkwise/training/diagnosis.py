"""Why training ended on numbers that are not finite: the last window once more, with every module watched.

The micro-batches run again as they ran, and once in fp32 for the ranges that the numbers would have had. What was
found is said, and kept as `overflow.json` in the run folder.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

import torch

from chunkwise.evaluation.run_folder import read_rows
from chunkwise.evaluation.typed_json import to_json, write_atomically
from chunkwise.training.log import RunLog
from chunkwise.training.precision import Precision, PrecisionConfig, PrecisionKind
from chunkwise.training.step import Parts, Update, Window, batch_losses
from chunkwise.training.watch import Passing, Reading, Watch

OVERFLOW = "overflow.json"
LARGEST = {
    PrecisionKind.fp16: torch.finfo(torch.float16).max,
    PrecisionKind.bf16: torch.finfo(torch.bfloat16).max,
    PrecisionKind.fp32: torch.finfo(torch.float32).max,
}
SHOWN = 12
"""How many utterances, and how many changes of the scale, are said; the file has more."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The first tensor that was not finite on its way, and what it is in fp32."""

    module: str  # in which it was computed
    tensor: str
    size: int
    not_finite: int
    fp32_low: float | None
    fp32_high: float | None
    fp32_is_finite: bool

    @property
    def text(self) -> str:
        """The finding in a line."""
        fp32 = "in fp32 none is finite either"
        if self.fp32_low is not None and self.fp32_high is not None:
            also = "" if self.fp32_is_finite else ", and some are not finite either"
            fp32 = f"in fp32 they lie between {self.fp32_low:.4g} and {self.fp32_high:.4g}{also}"
        return f"{self.module} ({self.tensor}): {self.not_finite} of {self.size} numbers are not finite; {fp32}"


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one micro-batch gave when it ran again."""

    rank: int
    micro_batch: int
    utterances: list[str]
    not_finite: list[str]  # those whose own loss is not
    output: Finding | None
    gradient: Finding | None

    @property
    def is_bad(self) -> bool:
        """Whether anything in it is not finite."""
        return bool(self.not_finite) or self.output is not None or self.gradient is not None


def stop_with_diagnosis(fault: str, parts: Parts, window: Window, update: Update, log: RunLog) -> NoReturn:
    """Find where the numbers of a dropped window broke, say it, keep it, and end training; every rank calls this."""
    mine = [examine(parts, window, number, update) for number in range(len(window.batches))]
    told = parts.world.gather_texts([json.dumps(asdict(report)) for report in mine])
    sentence = ""
    if told is not None:
        reports = [_from_json(text) for text in told]
        reports = [report for report in reports if report.is_bad] or reports
        content = _content(fault, reports, update, parts.precision.config, _scales(log, update))
        for line in _lines(content, reports):
            log.say(line)
        sentence = f"{fault}; {_place(reports)}; try {content['try'][0]}"
        if log.path is not None:
            write_atomically(log.path.with_name(OVERFLOW), to_json(content))
            sentence += f" ({log.path.with_name(OVERFLOW)} says more)"
    raise ValueError(parts.world.share_text(sentence))


def examine(parts: Parts, window: Window, number: int, update: Update) -> BatchReport:
    """Run one micro-batch as it ran, find the first tensors that are not finite, and their range in fp32."""
    losses, watch = _watched(parts, window, number, update)
    output, gradient = watch.first(Passing.input, Passing.output), watch.first(Passing.gradient)
    exact = watch
    if output is not None or gradient is not None:
        fp32 = Precision(PrecisionConfig(kind=PrecisionKind.fp32), parts.world.device)
        _, exact = _watched(replace(parts, precision=fp32), window, number, update)
    ids = window.batches[number].ids
    return BatchReport(
        rank=parts.world.rank,
        micro_batch=number,
        utterances=ids,
        not_finite=[name for name, loss in zip(ids, losses, strict=True) if not math.isfinite(loss)],
        output=None if output is None else _finding(output, exact),
        gradient=None if gradient is None else _finding(gradient, exact),
    )


def _watched(parts: Parts, window: Window, number: int, update: Update) -> tuple[list[float], Watch]:
    """The utterances' losses and what forward and backward of the unwrapped module let pass; leaves no gradients."""
    parts.objective.zero_grad(set_to_none=True)
    with torch.compiler.set_stance("force_eager"), Watch(parts.objective) as watch:  # compiled modules call no hooks
        losses = batch_losses(parts.objective, parts, window, number, update.place)
        (losses.sum() * (window.share(parts.world) * update.outcome.scale)).backward()
    parts.objective.zero_grad(set_to_none=True)
    return losses.tolist(), watch


def _finding(reading: Reading, exact: Watch) -> Finding:
    same = exact.same(reading)
    tensor = f"its {reading.passing}" if reading.tensor == reading.module else f"{reading.passing} of {reading.tensor}"
    return Finding(
        module=reading.module,
        tensor=tensor,
        size=reading.size,
        not_finite=reading.size - reading.num_finite,
        fp32_low=None if same is None else same.low,
        fp32_high=None if same is None else same.high,
        fp32_is_finite=same is not None and same.is_finite,
    )


def _from_json(text: str) -> BatchReport:
    values = json.loads(text)
    found = {name: values[name] and Finding(**values[name]) for name in ("output", "gradient")}
    return BatchReport(**values | found)


def _scales(log: RunLog, update: Update) -> list[tuple[int, float]]:
    """The steps at which the loss scale changed, and to what, from the run's own records."""
    rows = [] if log.path is None else [row for row in read_rows(log.path) if row.get("scale") is not None]
    course = [(row["step"], row["scale"]) for row in rows] or [(update.place.step, update.outcome.scale)]
    return [course[0], *(new for old, new in zip(course, course[1:], strict=False) if old[1] != new[1])]


def _content(
    fault: str,
    reports: Sequence[BatchReport],
    update: Update,
    config: PrecisionConfig,
    scales: Sequence[tuple[int, float]],
) -> dict[str, Any]:
    """What `overflow.json` holds."""
    return {
        "fault": fault,
        "precision": str(config.kind),
        "step": update.place.step + 1,
        "context": update.place.context.label,
        "loss": _number(update.loss),
        "loss_scale": update.outcome.scale,
        "batches": [asdict(report) for report in reports],
        "scale_history": [{"step": step, "scale": scale} for step, scale in scales],
        "try": advice(reports, config.kind),
    }


def advice(reports: Sequence[BatchReport], kind: PrecisionKind) -> list[str]:
    """What to try, the likeliest first."""
    output = next((report.output for report in reports if report.output is not None), None)
    gradient = next((report.gradient for report in reports if report.gradient is not None), None)
    calm = "a lower optimizer.lr, a longer schedule.warmup_steps, or the last checkpoint before this"
    if output is not None and (kind is PrecisionKind.fp32 or not output.fp32_is_finite):
        return [f"a look at the named utterances, and at {output.module}: fp32 breaks too", calm]
    if output is not None:
        fits = max(abs(output.fp32_low or 0.0), abs(output.fp32_high or 0.0)) <= LARGEST[kind]
        inside = f"products inside {output.module} that are scaled before they are summed, or kept in fp32"
        outside = f"smaller numbers in {output.module}: {kind} ends at {LARGEST[kind]:g}"
        return ["precision=bf16" if kind is PrecisionKind.fp16 else "precision=fp32", inside if fits else outside, calm]
    if gradient is not None and gradient.fp32_is_finite and kind is PrecisionKind.fp16:
        sums = "a loss that is divided by its tokens, not a sum"
        return ["precision=bf16", "a lower precision.grad_scaler.init_scale or min_scale", sums]
    return [calm, "precision=fp32" if kind is not PrecisionKind.fp32 else "a look at the named utterances"]


def _place(reports: Sequence[BatchReport]) -> str:
    """The first place of all, in a few words."""
    for report in reports:
        if report.output is None and report.not_finite:
            return f"every module's output is finite, the weighted loss of {_few(report.not_finite)} is not"
        if (finding := report.output or report.gradient) is not None:
            return f"first in {finding.module} ({finding.tensor})"
    return "every batch is finite by itself, their sum is not"


def _lines(content: dict[str, Any], reports: Sequence[BatchReport]) -> list[str]:
    """The diagnosis for the console."""
    lines = [f"stopped at step {content['step']} in {content['precision']}: {content['fault']}"]
    for report in reports:
        lines.append(f"rank {report.rank}, micro-batch {report.micro_batch} of {_few(report.utterances)}")
        if report.not_finite:
            lines.append(f"  loss: not finite for {_few(report.not_finite)}")
        for way in ("output", "gradient"):
            finding = getattr(report, way)
            lines.append(f"  first {way}: {'all are finite' if finding is None else finding.text}")
    course = [f"{item['scale']:g} at step {item['step']}" for item in content["scale_history"]]
    lines.append(f"loss scale: {', '.join(course[-SHOWN:])}")
    return lines + [f"try: {text}" for text in content["try"]]


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _number(value: float) -> float | str:
    """A number as JSON can hold it."""
    return value if math.isfinite(value) else str(value)
