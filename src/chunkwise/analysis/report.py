"""What an analysis leaves behind: matrices and strengths in an npz, a summary for JSON, and the sentence for people."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chunkwise.analysis.comparison import Dependence, spans
from chunkwise.analysis.dependencies import Analysis, DependencyConfig
from chunkwise.analysis.tokens import listened
from chunkwise.models.context import ENCODER_FRAME_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class DependenceSummary:
    """One system: how many entries may be and were seen, how far outputs reach, and what was wrong."""

    system: str
    outputs: str
    inputs: str
    num_outputs: int
    num_inputs: int
    expected: int  # entries that may depend
    seen: dict[str, int]  # by method: entries that do, among the inputs that the method looked at
    looked: dict[str, int]  # by method: how many inputs it looked at
    left: int  # inputs before the output's own block that were seen to matter
    right: int  # and after it
    violations: int
    unseen: int  # entries that may depend and were looked at, and are fainter than the tolerance
    contradictions: int  # between the methods
    faults: str  # where the violations are


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSummary:
    """One token: when it was emitted, and what its probability rests on."""

    token: int
    piece: str
    encoder_frame: int
    emitted_ms: int  # the end of that frame
    may_see: str  # feature frames
    listened: str  # the fewest feature frames that hold 90 % of the gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`dependencies.json`."""

    source: str
    context: str
    method: str
    draws: int
    poke: float
    number_format: str
    tolerance: float
    declared_lookahead_samples: int | None
    measured_lookahead_samples: int | None
    violations: int
    dependences: tuple[DependenceSummary, ...]
    tokens: tuple[TokenSummary, ...]


def summarise(analysis: Analysis, config: DependencyConfig, source: str, spell: Callable[[int], str]) -> Summary:
    """The numbers of an analysis; `spell` gives a token's text."""
    summaries = tuple(map(summarise_dependence, analysis.dependences.values()))
    return Summary(
        source=source,
        context=analysis.context.label,
        method=str(config.method),
        draws=config.draws,
        poke=config.poke,
        number_format=str(config.number_format),
        tolerance=config.number_format.tolerance,
        declared_lookahead_samples=analysis.declared_lookahead,
        measured_lookahead_samples=analysis.measured_lookahead,
        violations=sum(summary.violations for summary in summaries),
        dependences=summaries,
        tokens=summarise_tokens(analysis, spell),
    )


def summarise_dependence(dependence: Dependence) -> DependenceSummary:
    """The numbers of one system."""
    system, methods = dependence.system, dependence.methods
    num_outputs, num_inputs = system.expected.shape
    return DependenceSummary(
        system=system.name,
        outputs=system.outputs,
        inputs=system.inputs,
        num_outputs=num_outputs,
        num_inputs=num_inputs,
        expected=int(system.expected.sum()),
        seen={name: int(strengths.seen.sum()) for name, strengths in methods.items()},
        looked={name: len(strengths.positions) for name, strengths in methods.items()},
        left=dependence.left,
        right=dependence.right,
        violations=int(dependence.violations.sum()),
        unseen=int(dependence.unseen.sum()),
        contradictions=int(dependence.contradictions.sum()),
        faults=dependence.named(dependence.violations),
    )


def summarise_tokens(analysis: Analysis, spell: Callable[[int], str]) -> tuple[TokenSummary, ...]:
    """What each token of the hypothesis listened to."""
    emission = analysis.dependences.get("emission_from_features")
    if emission is None:
        return ()
    heard = listened(next(iter(emission.methods.values())))
    found = zip(analysis.hypothesis.tokens, analysis.hypothesis.frames, emission.system.expected, heard, strict=True)
    return tuple(
        TokenSummary(
            token=token,
            piece=spell(token),
            encoder_frame=frame,
            emitted_ms=(frame + 1) * ENCODER_FRAME_MS,
            may_see=spans(may_see),
            listened=spans(row),
        )
        for token, frame, may_see, row in found
    )


def write_matrices(analysis: Analysis, path: Path) -> None:
    """All matrices, `SYSTEM.expected`, `.seen` (a row per output), `.METHOD` (strengths) and `.METHOD_inputs`."""
    arrays: dict[str, np.ndarray] = {}
    for name, dependence in analysis.dependences.items():
        arrays[f"{name}.expected"] = dependence.system.expected.numpy()
        arrays[f"{name}.seen"] = dependence.seen.numpy()
        for method, strengths in dependence.methods.items():
            arrays[f"{name}.{method}"] = strengths.values.float().numpy()
            arrays[f"{name}.{method}_inputs"] = strengths.positions.numpy()
    arrays["hypothesis.tokens"] = np.array(analysis.hypothesis.tokens, dtype=np.int64)
    arrays["hypothesis.encoder_frames"] = np.array(analysis.hypothesis.frames, dtype=np.int64)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.tmp")
    with draft.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    draft.replace(path)


def describe(summary: Summary) -> str:
    """The summary as lines for a terminal."""
    lines = [f"{summary.source}, {summary.context}: {len(summary.tokens)} tokens, {summary.violations} violations"]
    for part in summary.dependences:
        seen = ", ".join(f"{name} {count}" for name, count in part.seen.items())
        lines.append(
            f"  {part.system:<24} {part.num_outputs} x {part.num_inputs}, may depend {part.expected}; seen {seen}; "
            f"reach {part.left} left, {part.right} right"
        )
    if summary.measured_lookahead_samples is not None:
        lines.append(
            f"  look-ahead from a chunk's start: {summary.measured_lookahead_samples} samples measured, "
            f"{summary.declared_lookahead_samples} declared"
        )
    lines += [
        f"  {token.piece!r} at {token.emitted_ms} ms listened to {token.listened}" for token in summary.tokens[:20]
    ]
    return "\n".join(lines)
