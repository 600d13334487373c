"""Seconds of audio per second: the training step in chunks, in full context and compiled; data path and filter bank.

The loader reads ahead while the step computes, so training is as fast as the slower of the two; here the loader
runs in the same process as everything else, without workers, which is its worst case.

    python experiments/bench/bench_throughput.py
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from harness import interleaved, ratio, report
from hydra import compose, initialize_config_dir

from chunkwise.audio.fbank import Fbank
from chunkwise.cli import assembly, rank
from chunkwise.config import TrainConfig, conf_dir, read, register
from chunkwise.data.batches import Batch
from chunkwise.data.corpora.prepare import prepare_corpus
from chunkwise.data.loading import listed, transcript
from chunkwise.data.samplers import Position, TrainBatches, train_loader
from chunkwise.losses.objective import Objective
from chunkwise.models.context import FULL, ChunkContext
from chunkwise.text.tokenizer import Tokenizer, train_tokenizer
from chunkwise.training.compilation import compile_training
from chunkwise.training.distributed import World
from chunkwise.training.state import TrainState
from chunkwise.training.step import Meter, Parts, next_window, take_step

ROUNDS, BATCHES = 7, 6


class Bench:
    """A training run of the embedded corpus, taken apart."""

    def __init__(self, config: TrainConfig) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.world = World(0, 1, torch.device("cpu"))
        self.cuts = listed(prepare_corpus(config.data).splits["train"])
        self.config = config
        self.tokenizer = self.train_tokenizer()
        self.parts = self.fresh_parts()
        self.compiled_parts = self.fresh_parts()
        compile_training(self.compiled_parts.objective, self.world.device)
        self.state = TrainState()
        self.loader = self.batches(["speed_1"])
        self.perturbing_loader = self.batches(["speed_0.9", "speed_1", "speed_1.1"])
        self.ready = [batch for _, batch in (next(self.loader) for _ in range(BATCHES))]

    def train_tokenizer(self) -> Tokenizer:
        """Characters of the digits' names."""
        path = Path(self.config.data.prepared_dir) / "bench.model"
        return train_tokenizer(map(transcript, self.cuts), self.config.tokenizer, path)

    def fresh_parts(self) -> Parts:
        """A model with its optimizer, ready for training."""
        model = assembly.build_model(self.config, self.tokenizer.vocab_size)
        parts = rank.build_parts(self.config, Objective(model, self.config.loss), self.world)
        parts.train_mode(True)
        return parts

    def batches(self, speeds: list[str]) -> Iterator[tuple[Position, Batch]]:
        """The endless stream of training batches, loaded in this process."""
        factors = [float(speed.removeprefix("speed_")) for speed in speeds]
        batches = TrainBatches(cuts=self.cuts, config=self.config.data, seed=0, speed_factors=factors)
        dataset = assembly.training_dataset(self.tokenizer, self.parts.fbank)
        return train_loader(batches, dataset, Position(), 0, 1)

    def step(self, parts: Parts, context: ChunkContext | None = None) -> float:
        """Audio per second of optimizer steps on batches that are ready, in one context or those of the recipe."""
        if context is not None:
            parts = replace(parts, draw_context=lambda step: context)
        start, at = time.perf_counter(), Position()
        for batch in self.ready:
            window = next_window(iter([(at, batch)]), 1, parts, self.state, Meter(0.0))
            take_step(parts.objective, parts, window, 1e-4, 5.0, self.state)
        return seconds_of(self.ready) / (time.perf_counter() - start)

    def load(self, loader: Iterator[tuple[Position, Batch]]) -> float:
        """Audio per second of the data path: reading, decoding, resampling, tokens, batches."""
        start = time.perf_counter()
        loaded = [next(loader)[1] for _ in range(2 * BATCHES)]
        return seconds_of(loaded) / (time.perf_counter() - start)

    def features(self) -> float:
        """Audio per second of the filter bank."""
        fbank: Fbank = self.parts.fbank
        start = time.perf_counter()
        for batch in self.ready:
            fbank(batch.waveforms, batch.lengths)
        return seconds_of(self.ready) / (time.perf_counter() - start)


def seconds_of(batches: list[Batch]) -> float:
    """How much audio the batches hold."""
    return sum(float(batch.lengths.sum()) for batch in batches) / 16_000


def main() -> None:
    """Measure and report."""
    register()
    overrides = [
        "experiment=digits_streaming", "runtime=cpu", "data.train_utterances=400", "data.dev_utterances=2",
        "data.test_utterances=2", "data.prepared_dir=runs/bench/prepared", "data.num_workers=0",
    ]  # fmt: skip
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        bench = Bench(read(TrainConfig, compose("train", overrides)))
    sides = {
        "training step": lambda: bench.step(bench.parts),
        "step, full": lambda: bench.step(bench.parts, FULL),
        "step, full, compiled": lambda: bench.step(bench.compiled_parts, FULL),
        "step, 640 ms left 4": lambda: bench.step(bench.parts, ChunkContext(16, 4)),
        "step, 640 ms": lambda: bench.step(bench.parts, ChunkContext(16, None)),
        "loader": lambda: bench.load(bench.loader),
        "loader, speed perturbed": lambda: bench.load(bench.perturbing_loader),
        "filter bank": bench.features,
    }
    rates = interleaved(sides, ROUNDS)
    ratios = {
        "step: 640 ms left 4 / full": ratio(rates, "step, full", "step, 640 ms left 4"),
        "step: 640 ms / full": ratio(rates, "step, full", "step, 640 ms"),
        "step: recipe's chunks / full": ratio(rates, "step, full", "training step"),
        "step: compiled / eager": ratio(rates, "step, full", "step, full, compiled"),
        "loader / step": ratio(rates, "loader", "training step"),
        "perturbed loader / step": ratio(rates, "loader, speed perturbed", "training step"),
        "filter bank / step": ratio(rates, "filter bank", "training step"),
    }
    report("throughput", "seconds of audio per second", rates, ratios)


if __name__ == "__main__":
    main()
