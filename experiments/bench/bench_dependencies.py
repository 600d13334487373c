"""Finding the dependencies of an encoder over 96 feature frames: this analysis beside SpeechBrain's.

`infer_dependency_matrix` replaces one frame per forward, once, and compares every output frame by itself. The analysis
puts pokes, or the outputs to differentiate, into the rows of a batch. Both run on the same encoder and must find the
same matrix. The encoder of two layers and 40 mels is the one of the exact answers in the tests, where calls cost more
than the arithmetic in them; the digits recipe's is so much larger that the arithmetic counts, of which two methods with
two draws each do four times as much.

    python experiments/bench/bench_dependencies.py
"""

import time
from collections.abc import Callable

import torch
from harness import interleaved, ratio, report
from jaxtyping import Bool, Float
from speechbrain.utils.streaming import infer_dependency_matrix  # pyright: ignore[reportMissingImports]
from torch import Tensor

from chunkwise.analysis.measurement import gradient_strengths, poke_strengths
from chunkwise.analysis.systems import System, features_system, frozen
from chunkwise.models.conformer import EncoderConfig
from chunkwise.models.context import ChunkContext
from chunkwise.models.joiner import JoinerConfig
from chunkwise.models.predictor import PredictorConfig
from chunkwise.models.transducer import Transducer, TransducerConfig

ROUNDS, FRAMES, TOLERANCE, BATCH_ROWS = 7, 96, 1e-7, 128
"""Float32 on both sides, with a tolerance below the faintest dependency of these encoders, so that all find all."""

MELS = {"two layers": 40, "digits": 80}
ENCODERS = {
    "two layers": EncoderConfig(
        d_model=16, num_layers=2, num_heads=2, feed_forward_dim=32, kernel_size=5, subsampling_channels=4
    ),
    "digits": EncoderConfig(
        d_model=128, num_layers=4, num_heads=4, feed_forward_dim=512, kernel_size=15, subsampling_channels=32
    ),
}


class Bench:
    """One encoder, its dependencies found in several ways, and how often each way called it."""

    def __init__(self, config: EncoderConfig, num_mels: int) -> None:
        torch.manual_seed(0)
        self.num_mels = num_mels
        parts = TransducerConfig(
            encoder=config,
            predictor=PredictorConfig(dim=8),
            joiner=JoinerConfig(dim=8),
            num_mels=num_mels,
            vocab_size=8,
        )
        model = frozen(Transducer(parts), torch.float32)
        assert isinstance(model, Transducer)
        model.encoder.register_forward_hook(self.count)
        self.system: System = features_system(model, FRAMES, ChunkContext(4, 1))
        self.calls = 0

    def count(self, *_: object) -> None:
        """Another call of the encoder."""
        self.calls += 1

    def speechbrain(self) -> Bool[Tensor, "outputs inputs"]:
        """One forward per frame."""
        return infer_dependency_matrix(self.system.function, (1, FRAMES, self.num_mels)).T

    def one_gradient(self) -> Bool[Tensor, "outputs inputs"]:
        """One draw of gradients: one answer, as on the other side."""
        return self.gradient(draws=1)

    def gradient(self, draws: int = 2) -> Bool[Tensor, "outputs inputs"]:
        """Draws of gradients."""
        return gradient_strengths(
            self.system.function, self.bases()[:draws], len(self.system.expected), TOLERANCE, rng(), BATCH_ROWS
        ).seen

    def perturbation(self) -> Bool[Tensor, "outputs inputs"]:
        """Two draws of pokes."""
        positions = torch.arange(FRAMES)
        return poke_strengths(
            self.system.function, self.bases(), positions, TOLERANCE, rng(), batch_rows=BATCH_ROWS
        ).seen

    def both(self) -> Bool[Tensor, "outputs inputs"]:
        """Two independent answers."""
        return self.gradient() & self.perturbation()

    def bases(self) -> Float[Tensor, "draws frames mels"]:
        """Where to measure."""
        return torch.randn(2, FRAMES, self.num_mels, generator=rng())

    def calls_of(self, way: Callable[[], Tensor]) -> int:
        """How many calls of the encoder a way needs."""
        self.calls = 0
        way()
        return self.calls

    def missed(self, way: Callable[[], Tensor]) -> str:
        """How the matrix that a way finds differs from the exact one."""
        found = way()
        return (
            f"{int((self.system.expected & ~found).sum())} missed, {int((found & ~self.system.expected).sum())} extra"
        )


def rng() -> torch.Generator:
    """The same draws on every call."""
    return torch.Generator().manual_seed(0)


def timed(way: Callable[[], Tensor]) -> Callable[[], float]:
    """A side of the benchmark: matrices per second."""

    def side() -> float:
        start = time.perf_counter()
        way()
        return 1.0 / (time.perf_counter() - start)

    return side


def main() -> None:
    """Measure and report."""
    torch.set_num_threads(1)
    sides, ratios, ways = {}, {}, {}
    for name, config in ENCODERS.items():
        bench = Bench(config, MELS[name])
        found = {
            f"{name}: {way.__name__}": way
            for way in (bench.speechbrain, bench.one_gradient, bench.gradient, bench.perturbation, bench.both)
        }
        for label, way in found.items():
            calls = bench.calls_of(way)
            ratios[f"calls, {label}"] = float(calls)
            print(f"  {label:<28} {calls:4d} encoder calls; {bench.missed(way)}")
        ways |= found
        sides |= {label: timed(way) for label, way in found.items()}
    rates = interleaved(sides, ROUNDS)
    for label in ways:
        other = f"{label.split(':')[0]}: speechbrain"
        if label != other:
            ratios[f"speed, {label}"] = ratio(rates, label, other)
            ratios[f"fewer calls, {label}"] = ratios[f"calls, {other}"] / ratios[f"calls, {label}"]
    report("dependencies", "matrices per second", rates, ratios)


if __name__ == "__main__":
    main()
