"""The encoder's training pass, forward and backward: chunked against full context, and against the peers' Conformers.

All are of one size (three layers of 256, 4 heads, feed-forward 1024, kernel 31), without dropout, on one thread, from
subsampled frames. The peers are SpeechBrain's Conformer with RelPosMHAXL and torchaudio's.

    python experiments/bench/bench_encoder.py
"""

import time
from collections.abc import Callable

import torch
from harness import interleaved, ratio, report
from speechbrain.lobes.models.transformer.Conformer import ConformerEncoder as SpeechBrainConformer  # pyright: ignore[reportMissingImports]
from speechbrain.lobes.models.transformer.TransformerASR import make_transformer_src_mask  # pyright: ignore[reportMissingImports]
from speechbrain.nnet.attention import RelPosEncXL  # pyright: ignore[reportMissingImports]
from speechbrain.utils.dynamic_chunk_training import DynChunkTrainConfig  # pyright: ignore[reportMissingImports]
from torch import Tensor
from torchaudio.models import Conformer as TorchaudioConformer

from chunkwise.models.conformer import AttentionKind, ConformerEncoder, EncoderConfig
from chunkwise.models.context import FULL, ChunkContext
from chunkwise.training.compilation import compile_layers

ROUNDS = 5
D_MODEL, HEADS, FEED_FORWARD, KERNEL, LAYERS = 256, 4, 1024, 31, 3
SHAPES = {"4 x 375": (4, 375), "1 x 1500": (1, 1500)}
LIMITED, UNLIMITED = ChunkContext(16, 4), ChunkContext(16, None)

Pass = Callable[[], Tensor]


def ours(attention: AttentionKind) -> ConformerEncoder:
    """Chunkwise's encoder."""
    config = EncoderConfig(
        d_model=D_MODEL, num_heads=HEADS, feed_forward_dim=FEED_FORWARD, kernel_size=KERNEL, num_layers=LAYERS,
        attention=attention, dropout=0.0,
    )  # fmt: skip
    return ConformerEncoder(config, num_mels=80)


def speechbrain() -> tuple[SpeechBrainConformer, RelPosEncXL]:
    """SpeechBrain's encoder and its positions."""
    encoder = SpeechBrainConformer(LAYERS, D_MODEL, FEED_FORWARD, HEADS, KERNEL, attention_type="RelPosMHAXL")
    return encoder, RelPosEncXL(D_MODEL)


def sides(batch: int, frames: int) -> dict[str, Callable[[], float]]:
    """Training passes per second of every encoder and context."""
    x, lengths = torch.randn(batch, frames, D_MODEL), torch.full((batch,), frames)
    rotary, relative = ours(AttentionKind.rotary), ours(AttentionKind.relative)
    compiled = ours(AttentionKind.rotary)
    compile_layers(compiled)
    peer, positions = speechbrain()
    other = TorchaudioConformer(D_MODEL, HEADS, FEED_FORWARD, LAYERS, KERNEL)
    chunks = DynChunkTrainConfig(chunk_size=16, left_context_size=4)

    def peer_full() -> Tensor:
        return peer(x, pos_embs=positions(x))[0]

    def peer_chunked() -> Tensor:
        mask = make_transformer_src_mask(x, dynchunktrain_config=chunks)
        return peer(x, src_mask=mask, pos_embs=positions(x), dynchunktrain_config=chunks)[0]

    passes: dict[str, Pass] = {
        "ours, full": lambda: rotary.contextualise(x, lengths, FULL)[0],
        "ours compiled, full": lambda: compiled.contextualise(x, lengths, FULL)[0],
        "ours, 16 left 4": lambda: rotary.contextualise(x, lengths, LIMITED)[0],
        "ours, 16 left unlimited": lambda: rotary.contextualise(x, lengths, UNLIMITED)[0],
        "ours relative, full": lambda: relative.contextualise(x, lengths, FULL)[0],
        "ours relative, 16 left 4": lambda: relative.contextualise(x, lengths, LIMITED)[0],
        "SpeechBrain, full": peer_full,
        "SpeechBrain, 16 left 4": peer_chunked,
        "torchaudio, full": lambda: other(x, lengths)[0],
    }
    return {name: lambda run=run: passes_per_second(run) for name, run in passes.items()}


def passes_per_second(run: Pass) -> float:
    """One forward and backward pass."""
    start = time.perf_counter()
    run().square().mean().backward()
    return 1 / (time.perf_counter() - start)


def main() -> None:
    """Measure and report."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for shape, (batch, frames) in SHAPES.items():
        rates = interleaved(sides(batch, frames), ROUNDS)

        def times(one: str, other: str, rates: dict[str, list[float]] = rates) -> float:
            return ratio(rates, other, one)  # of times, hence the inverse of the rates

        peers = [times("ours, full", peer) for peer in ("SpeechBrain, full", "torchaudio, full")]
        compiled = [times("ours compiled, full", peer) for peer in ("SpeechBrain, full", "torchaudio, full")]
        ratios = {
            "chunked left 4 / full": times("ours, 16 left 4", "ours, full"),
            "chunked left unlimited / full": times("ours, 16 left unlimited", "ours, full"),
            "full / the faster peer's full": max(peers),
            "compiled / eager, full": times("ours compiled, full", "ours, full"),
            "compiled: full / the faster peer's": max(compiled),
            "chunked / SpeechBrain's chunked": times("ours, 16 left 4", "SpeechBrain, 16 left 4"),
            "relative: chunked left 4 / full": times("ours relative, 16 left 4", "ours relative, full"),
            "relative: full / SpeechBrain's full": times("ours relative, full", "SpeechBrain, full"),
            "SpeechBrain: chunked / full": times("SpeechBrain, 16 left 4", "SpeechBrain, full"),
        }
        report(f"encoder_{batch}x{frames}", f"training passes per second, {shape} frames", rates, ratios)


if __name__ == "__main__":
    main()
