"""The files that an evaluation leaves, each whole or not at all, and what it says on the terminal."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from chunkwise.evaluation.page import write_page
from chunkwise.evaluation.run_folder import StoredMetrics, StoredTiming
from chunkwise.evaluation.significance import wer_interval
from chunkwise.evaluation.spelling import check_spelling
from chunkwise.evaluation.streamed import show_latency
from chunkwise.evaluation.tables import show_interval, show_rate
from chunkwise.evaluation.tally import Evaluation
from chunkwise.evaluation.typed_json import to_json, write_atomically
from chunkwise.text.tokenizer import Tokenizer


def stored_metrics(evaluation: Evaluation) -> StoredMetrics:
    """What `metrics.json` holds of an evaluation; on rank 0, which has its utterances."""
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
        wer_interval=wer_interval(evaluation.utterances or ()),
        reference_tokens=evaluation.reference_tokens,
        unknown_tokens=evaluation.unknown_tokens,
        hypothesis_tokens=evaluation.hypothesis_tokens,
    )


def write_evaluation(
    folder: Path,
    title: str,
    evaluation: Evaluation,
    streams: Mapping[str, object] | None = None,
    tokenizer: Tokenizer | None = None,
) -> StoredMetrics:
    """Write `metrics.json`, `hypotheses.jsonl` (a scored utterance per line, sorted by id), `timing.json` and reports.

    The first two are the same, byte for byte, for every number of ranks and every batch size. The report for people is
    `report.md`, and `report.html` with the plots inside; given the tokenizer, it tells what that cannot spell.
    Of streams there is also `latency.json`, beginning with what `streams` says about them. Rank 0 calls this.
    """
    if evaluation.utterances is None:
        raise ValueError(f"{folder}: only rank 0 holds the utterances, so only rank 0 can write them")
    metrics = stored_metrics(evaluation)
    lines = [utterance.to_line() + "\n" for utterance in evaluation.utterances]
    write_atomically(folder / "hypotheses.jsonl", "".join(lines))
    if evaluation.latency is not None:
        latency = {**(streams or {}), "rtf": evaluation.rtf, **evaluation.latency.summary()}
        write_atomically(folder / "latency.json", to_json(latency))
    spelling = None if tokenizer is None else check_spelling(evaluation.utterances, tokenizer)
    write_page(folder, title, evaluation, metrics, spelling)
    timing = StoredTiming(compute_s=evaluation.compute_s, rtf=evaluation.rtf)
    write_atomically(folder / "timing.json", to_json(asdict(timing)))
    write_atomically(folder / "metrics.json", to_json(asdict(metrics)))
    return metrics


def show_evaluation(
    title: str, evaluation: Evaluation, metrics: StoredMetrics, streams: Mapping[str, object] | None = None
) -> str:
    """The error rates for people, and the delays of streams below."""
    between = "" if metrics.wer_interval is None else f", {show_interval(metrics.wer_interval)} in 95 % of resamples"
    rates = (
        f"{title}: WER {show_rate(metrics.wer)}{between} ({metrics.substitutions} substitutions, "
        f"{metrics.deletions} deletions, {metrics.insertions} insertions in {metrics.words} words of "
        f"{metrics.utterances} utterances)"
    )
    return rates if evaluation.latency is None else f"{rates}\n{show_latency(evaluation.latency, streams)}"
