"""The files that an evaluation leaves: `metrics.json`, `hypotheses.jsonl`, `timing.json`; each whole or not at all."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from chunkwise.evaluation.run_folder import StoredMetrics, StoredTiming
from chunkwise.evaluation.tally import Evaluation
from chunkwise.evaluation.typed_json import to_json, write_atomically


def stored_metrics(evaluation: Evaluation) -> StoredMetrics:
    """What `metrics.json` holds of an evaluation."""
    counts = evaluation.counts
    return StoredMetrics(
        utterances=counts.utterances,
        words=counts.words,
        substitutions=counts.substitutions,
        deletions=counts.deletions,
        insertions=counts.insertions,
        sentence_errors=counts.sentence_errors,
        characters=counts.characters,
        character_errors=counts.character_errors,
        wer=counts.wer,
        cer=counts.cer,
        audio_s=evaluation.audio_s,
    )


def write_evaluation(folder: Path, evaluation: Evaluation, streams: Mapping[str, object] | None = None) -> None:
    """Write `metrics.json`, `hypotheses.jsonl` (one scored utterance per line, sorted by id) and `timing.json`.

    The first two are the same, byte for byte, for every number of ranks and every batch size. Rank 0 calls this.

    Of streams there is also `latency.json`, beginning with what `streams` says about them.
    """
    if evaluation.utterances is None:
        raise ValueError(f"{folder}: only rank 0 holds the utterances, so only rank 0 can write them")
    lines = [utterance.to_line() + "\n" for utterance in evaluation.utterances]
    write_atomically(folder / "hypotheses.jsonl", "".join(lines))
    if evaluation.latency is not None:
        latency = {**(streams or {}), "rtf": evaluation.rtf, **evaluation.latency.summary()}
        write_atomically(folder / "latency.json", to_json(latency))
    timing = StoredTiming(compute_s=evaluation.compute_s, rtf=evaluation.rtf)
    write_atomically(folder / "timing.json", to_json(asdict(timing)))
    write_atomically(folder / "metrics.json", to_json(asdict(stored_metrics(evaluation))))
