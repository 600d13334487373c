"""`chunkwise-stream`: recognise one recording chunk by chunk, with carried state."""

from collections.abc import Callable
from pathlib import Path

import torch

from chunkwise.audio.reading import read_audio
from chunkwise.cli import assembly
from chunkwise.cli.application import application
from chunkwise.config import StreamConfig
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.evaluation.recogniser import Recogniser
from chunkwise.evaluation.streamed import Pace, add_delays, show_latency
from chunkwise.models.context import ChunkContext, fixed_context
from chunkwise.streaming.latency import Latency, lookahead_samples
from chunkwise.streaming.session import Session, Transcript
from chunkwise.training.distributed import open_world
from chunkwise.typing import Seconds


def run(config: StreamConfig, folder: Path, command: str) -> None:
    """Print partial results as they grow, then the final text."""
    if config.audio is None:
        raise ValueError("audio=null must name the recording to recognise; try audio=recording.wav")
    context = fixed_context(config.chunking)
    checkpoint, trained = assembly.load_trained(config.checkpoint)
    waveform, rate_hz = read_audio(Path(config.audio))
    latency = Latency()
    with open_world(config.runtime) as world:
        recogniser = assembly.load_recogniser(checkpoint, trained, config.decoding, world.device)
        final = stream(
            recogniser, context, (waveform.to(world.device), rate_hz), config.piece_ms,
            lambda heard_s, partial: print(f"{heard_s:7.2f} s  {partial.text}", flush=True), latency,
        )  # fmt: skip
        print(show_stream(recogniser, context, final, len(waveform) / rate_hz, latency))
        print(f"final      {final.text}")


def show_stream(
    recogniser: Recogniser, context: ChunkContext, final: Transcript, duration_s: Seconds, latency: Latency
) -> str:
    """How late the tokens of the stream were, and how much of real time the computing took."""
    hypothesis = Hypothesis(final.tokens, final.frames, score=0.0)
    add_delays(latency, hypothesis, [], duration_s, recogniser, context)
    computed_s = sum(delay * count for delay, count in latency.compute.counts.items()) / 1e6
    streams = {"lookahead_samples": lookahead_samples(recogniser.fbank, context)}
    return f"{show_latency(latency, streams)}\nrtf                {computed_s / max(duration_s, 1e-9):.3f}"


def stream(
    recogniser: Recogniser,
    context: ChunkContext,
    audio: tuple[torch.Tensor, int],
    piece_ms: float,
    show: Callable[[Seconds, Transcript], None],
    latency: Latency,
) -> Transcript:
    """Feed a waveform and its sample rate to a session piece by piece; `show` gets each new partial result."""
    waveform, rate_hz = audio
    parts = (recogniser.model, recogniser.fbank, recogniser.tokenizer, recogniser.search)
    session = Session(*parts, context, rate_hz)
    piece, shown, pace = max(1, round(rate_hz * piece_ms / 1000)), "", Pace(latency)
    for start in range(0, len(waveform), piece):
        with pace:
            session.receive(waveform[start : start + piece])
        pace.run([session])
        partial = session.result()
        if partial.text != shown:
            shown = partial.text
            show(min(start + piece, len(waveform)) / rate_hz, partial)
    with pace:
        session.end()
    pace.run([session])
    return session.result()


main = application("stream", run)

if __name__ == "__main__":
    main()
