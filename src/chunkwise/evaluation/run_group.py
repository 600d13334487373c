"""The runs of one experiment, read together: one commit and one config, several seeds or held-out speakers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from chunkwise.evaluation.run_folder import RunFacts, StoredEvaluation, read_evaluations

Scores = dict[tuple[str, str], list[StoredEvaluation]]
"""By split and context label, the evaluations of each seed."""


@dataclass(frozen=True, slots=True)
class RunGroup:
    """What the runs have in common, and their evaluations seed by seed."""

    facts: tuple[RunFacts, ...]  # one per run
    seeds: tuple[int, ...]
    scores: Scores

    @property
    def test_utterances(self) -> int:
        """How many utterances one seed's test splits hold together (all splits, where none is called test)."""
        splits = {split: by_seed[0].metrics.utterances for (split, _), by_seed in self.scores.items()}
        tests = {split: count for split, count in splits.items() if split.startswith("test")}
        return sum((tests or splits).values())

    def mean(self, name: str) -> float:
        """The mean of one of the facts, such as `train_s`, over the runs."""
        return round(fmean(getattr(facts, name) for facts in self.facts), 3)


def read_group(runs: Sequence[Path]) -> RunGroup:
    """The group that run folders form; refuses runs of different experiments, and missing evaluations."""
    if not runs:
        raise ValueError("no run folder is given; name at least one")
    facts = tuple(RunFacts.read(run) for run in runs)
    for run, its in zip(runs, facts, strict=True):
        for name in ("commit", "parameters"):
            mine, first = getattr(its, name), getattr(facts[0], name)
            if mine != first:
                raise ValueError(f"{run}: {name}={mine} must be that of {runs[0]}, {first}; record them apart")
        if _design(its) != _design(facts[0]):
            raise ValueError(f"{run}: its config must be that of {runs[0]} but for the seed; record them apart")
    seeds = tuple(dict.fromkeys(its.setting("seed") for its in facts))
    return RunGroup(facts, seeds, _read_scores(runs, facts, seeds))


def _design(facts: RunFacts) -> dict[str, object]:
    """The config without what may differ between the runs of one experiment."""
    data = {key: value for key, value in facts.setting("data").items() if key != "holdout_speaker"}
    return {**{key: value for key, value in facts.config.items() if key not in ("seed", "resume")}, "data": data}


def _read_scores(runs: Sequence[Path], facts: Sequence[RunFacts], seeds: Sequence[int]) -> Scores:
    """The evaluations of all runs; those with a held-out speaker stand under a split of their own."""
    found: dict[tuple[str, str], dict[int, StoredEvaluation]] = {}
    for run, its in zip(runs, facts, strict=True):
        seed, speaker = its.setting("seed"), its.setting("data.holdout_speaker")
        for (split, context), evaluation in read_evaluations(run).items():
            by_seed = found.setdefault((f"{split}:{speaker}" if speaker else split, context), {})
            if seed in by_seed:
                raise ValueError(f"{run}: seed={seed} is that of another run; give each run a seed of its own")
            if evaluation.metrics.wer is None:
                raise ValueError(f"{run}: {split}-{context} has no reference word, hence no WER to record")
            by_seed[seed] = evaluation
    for (split, context), by_seed in found.items():
        if missing := [seed for seed in seeds if seed not in by_seed]:
            raise ValueError(f"{split}-{context} was not evaluated for the seeds {missing}; evaluate those runs too")
    return {key: [by_seed[seed] for seed in seeds] for key, by_seed in found.items()}
