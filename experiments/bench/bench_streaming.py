"""Streaming inference: one stream against SpeechBrain's `forward_streaming`, and sixteen streams in one batch.

Twelve layers of 256 (4 heads, feed-forward 1024, kernel 31), chunks of 16 encoder frames, left context of 4 chunks,
one minute of subsampled frames, one thread.

    python experiments/bench/bench_streaming.py
"""

import time

import torch
from harness import interleaved, ratio, report
from speechbrain.lobes.models.transformer.Conformer import ConformerEncoder as SpeechBrainConformer  # pyright: ignore[reportMissingImports]
from speechbrain.nnet.attention import RelPosEncXL  # pyright: ignore[reportMissingImports]
from speechbrain.utils.dynamic_chunk_training import DynChunkTrainConfig  # pyright: ignore[reportMissingImports]
from torch import Tensor

from chunkwise.models.conformer import ConformerEncoder, EncoderConfig
from chunkwise.models.context import ChunkContext
from chunkwise.models.encoder_state import EncoderState
from chunkwise.nn.linear import pack_weights

ROUNDS = 5
CHUNK, LEFT, STREAMS = 16, 4, 16
MINUTE = 1500 // CHUNK
"""Chunks in a minute."""
SHORT = 12
"""Chunks of each of the sixteen streams."""
CONTEXT = ChunkContext(CHUNK, LEFT)


class Ours:
    """Chunkwise's encoder."""

    def __init__(self) -> None:
        self.encoder = ConformerEncoder(EncoderConfig(dropout=0.0), num_mels=80).eval()
        pack_weights(self.encoder)

    def run(self, chunks: list[Tensor]) -> set[int]:
        """Every chunk; how many bytes the stream held after one."""
        state, held = self.encoder.initial_state(len(chunks[0]), CONTEXT), set[int]()
        for chunk in chunks:
            _, state = self.encoder.contextualise_chunk(chunk, None, state)
            held.add(state_bytes(state))
        return held


class SpeechBrain:
    """SpeechBrain's encoder, which caches inputs of the attention and computes their keys and values again."""

    def __init__(self) -> None:
        self.encoder = SpeechBrainConformer(12, 256, 1024, 4, 31, attention_type="RelPosMHAXL").eval()
        self.positions = RelPosEncXL(256)
        self.config = DynChunkTrainConfig(chunk_size=CHUNK, left_context_size=LEFT)

    def run(self, chunks: list[Tensor]) -> None:
        """Every chunk, as `TransformerASR.encode_streaming` does it."""
        context = self.encoder.make_streaming_context(self.config)
        for chunk in chunks:
            known = context.layers[0].mha_left_context
            seen = chunk.shape[1] + (0 if known is None else known.shape[1])
            self.encoder.forward_streaming(chunk, context, self.positions(torch.empty(1, seen, 256)))


def state_bytes(state: EncoderState) -> int:
    """What a stream holds between two chunks."""
    parts = [
        part for layer in state.layers for part in (layer.attention.keys, layer.attention.values, layer.convolution)
    ]
    return sum(part.numel() * part.element_size() for part in parts)


def chunks_per_second(run: object, chunks: list[Tensor], copies: int = 1) -> float:
    """Chunks of all streams per second."""
    assert callable(run)
    start = time.perf_counter()
    for _ in range(copies):
        run(chunks)
    return copies * len(chunks) * len(chunks[0]) / (time.perf_counter() - start)


def main() -> None:
    """Measure and report."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ours, peer = Ours(), SpeechBrain()
    minute = [torch.randn(1, CHUNK, 256) for _ in range(MINUTE)]
    short = minute[:SHORT]
    batch = [chunk.expand(STREAMS, -1, -1).contiguous() for chunk in short]
    with torch.inference_mode():
        held = ours.run(minute)
        assert len(held) == 1, f"the state's size changes: {sorted(held)}"
        rates = interleaved(
            {
                "ours, one stream": lambda: chunks_per_second(ours.run, minute),
                "SpeechBrain, one stream": lambda: chunks_per_second(peer.run, minute),
                "ours, 16 one by one": lambda: chunks_per_second(ours.run, short, STREAMS),
                "ours, 16 in a batch": lambda: chunks_per_second(ours.run, batch),
            },
            ROUNDS,
        )
    ratios = {
        "ours / SpeechBrain, per chunk": ratio(rates, "SpeechBrain, one stream", "ours, one stream"),
        "16 in a batch / 16 one by one": ratio(rates, "ours, 16 one by one", "ours, 16 in a batch"),
        "bytes of a stream's state": float(held.pop()),
    }
    report("streaming", "chunks per second", rates, ratios)


if __name__ == "__main__":
    main()
