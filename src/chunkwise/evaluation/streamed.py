"""Recognition of whole batches through sessions, piece by piece, and how late each token was."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from lhotse.cut import Cut

from chunkwise.data.batches import Batch
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.evaluation.config import EvalConfig, EvalPath
from chunkwise.evaluation.recogniser import Recogniser, inference
from chunkwise.evaluation.wer import align_words
from chunkwise.models.context import ChunkContext
from chunkwise.streaming.latency import (
    Latency,
    emission_times,
    lookahead_ms,
    lookahead_samples,
    measured_lookahead_samples,
)
from chunkwise.streaming.session import Session, advance
from chunkwise.text.normalisation import normalise
from chunkwise.text.tokenizer import Tokenizer
from chunkwise.typing import Seconds


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word and when it was said, from the start of its utterance."""

    text: str
    start_s: Seconds
    end_s: Seconds


def spoken_words(cut: Cut) -> list[SpokenWord]:
    """The words of a cut whose corpus tells their times, in order; else none."""
    items = [item for supervision in cut.supervisions for item in (supervision.alignment or {}).get("word", [])]
    in_order = sorted(items, key=lambda item: item.start)
    return [SpokenWord(word, item.start, item.end) for item in in_order for word in normalise(item.symbol).split()]


class Pace:
    """Advances sessions and counts what each chunk cost: the time inside `with pace`, and that of the chunk itself."""

    def __init__(self, latency: Latency) -> None:
        self.latency = latency
        self.spent_s = 0.0

    def __enter__(self) -> None:
        self.spent_s -= perf_counter()

    def __exit__(self, *error: object) -> None:
        self.spent_s += perf_counter()

    def run(self, sessions: Sequence[Session]) -> None:
        """Run every chunk that is complete."""
        moved = True
        while moved:
            with self:
                moved = bool(advance(sessions))
            if moved:
                self.latency.compute.add([1000 * self.spent_s])
                self.spent_s = 0.0


def stream_batch(
    recogniser: Recogniser, batch: Batch, context: ChunkContext, piece_ms: float, latency: Latency
) -> list[Hypothesis]:
    """One hypothesis per utterance, each heard by a session of its own; all sessions advance together."""
    rate_hz = recogniser.fbank.config.sample_rate_hz
    piece = max(1, round(rate_hz * piece_ms / 1000))
    parts = (recogniser.model, recogniser.fbank, recogniser.tokenizer, recogniser.search)
    with inference(recogniser.model, recogniser.fbank):
        sessions = [Session(*parts, context, rate_hz) for _ in batch.ids]
        lengths, pace, position = batch.lengths.tolist(), Pace(latency), 0
        while not all(session.finished for session in sessions):
            with pace:
                for session, waveform, length in zip(sessions, batch.waveforms, lengths, strict=True):
                    if position < length:
                        session.receive(waveform[position : min(position + piece, length)])
                    if position + piece >= length:
                        session.end()
            pace.run(sessions)
            position += piece
        return [session.search.hypotheses(session.state.search)[0] for session in sessions]


def describe_streams(recogniser: Recogniser, context: ChunkContext, config: EvalConfig) -> dict[str, object] | None:
    """What `latency.json` says of the streams besides the delays; the look-ahead is measured, not only declared.

    `None` on the masked path.
    """
    if config.path is EvalPath.masked:
        return None
    rate_hz = recogniser.fbank.config.sample_rate_hz
    session = Session(recogniser.model, recogniser.fbank, recogniser.tokenizer, recogniser.search, context, rate_hz)
    declared, measured = lookahead_samples(recogniser.fbank, context), measured_lookahead_samples(session)
    if declared != measured:
        raise RuntimeError(f"the first chunk ran after {measured} samples, but {declared} were declared")
    return {
        "context": context.label,
        "streams_at_a_time": config.max_batch_utterances,
        "piece_ms": config.piece_ms,
        "lookahead_samples": measured,
        "lookahead_ms": lookahead_ms(recogniser.fbank, context),
    }


def add_delays(
    latency: Latency,
    hypothesis: Hypothesis,
    words: Sequence[SpokenWord],
    duration_s: Seconds,
    recogniser: Recogniser,
    context: ChunkContext,
) -> None:
    """Count the delays of an utterance's tokens, and of its words that were recognised."""
    if not hypothesis.tokens:
        return
    times = emission_times(hypothesis.frames, duration_s, recogniser.fbank, context)
    begins_s, ends_s = (words[0].start_s, words[-1].end_s) if words else (0.0, duration_s)
    latency.first_token.add([times.available_ms[0] - 1000 * begins_s])
    latency.last_token.add([times.available_ms[-1] - 1000 * ends_s])
    for word, token in recognised(words, hypothesis.tokens, recogniser.tokenizer):
        latency.word.add([times.available_ms[token] - 1000 * word.end_s])
        latency.emission.add([times.emitted_ms[token] - 1000 * word.end_s])


def recognised(
    words: Sequence[SpokenWord], tokens: Sequence[int], tokenizer: Tokenizer
) -> list[tuple[SpokenWord, int]]:
    """The words that were recognised, each with the place of the token that completed it."""
    if not words:
        return []
    heard = tokenizer.decode(tokens)
    completed = completing_tokens(tokens, tokenizer)
    pairs = align_words(" ".join(word.text for word in words), heard)
    found, spoken, said = [], 0, 0
    for reference, hypothesis in pairs:
        if reference is not None and reference == hypothesis and said < len(completed):
            found.append((words[spoken], completed[said]))
        spoken += reference is not None
        said += hypothesis is not None
    return found


def completing_tokens(tokens: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """For each word of a hypothesis, the place of the token with which it was fully spelled."""
    heard, places = tokenizer.decode(tokens).split(), []
    for place in range(len(tokens)):
        so_far = tokenizer.decode(tokens[: place + 1]).split()
        while len(places) < len(so_far) and so_far[len(places)] == heard[len(places)]:
            places.append(place)
    return places


NAMES = {
    "compute": "compute per chunk",
    "first_token": "first token",
    "last_token": "last token",
    "word": "word known",
    "emission": "word emitted",
}
"""What people call the delays."""


def show_latency(latency: Latency, streams: Mapping[str, object] | None = None) -> str:
    """The delays for people, one kind per line."""
    look_ahead = (streams or {}).get("lookahead_samples")
    lines = [f"{'look-ahead':<18} {look_ahead} samples"] if look_ahead else []
    for field, name in NAMES.items():
        summary = getattr(latency, field).summary()
        if summary["count"]:
            lines.append(f"{name:<18} p50 {summary['p50']:.1f} ms, p90 {summary['p90']:.1f}, p99 {summary['p99']:.1f}")
    return "\n".join(lines)
