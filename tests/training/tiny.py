"""A training run that is small enough to repeat: a tiny model, noise for speech, and everything else for real."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from chunkwise.audio.fbank import Fbank, FbankConfig
from chunkwise.data.batches import Batch, Utterance, collate
from chunkwise.data.samplers import Position
from chunkwise.data.skips import Skip
from chunkwise.losses.config import LossConfig, LossKind
from chunkwise.losses.objective import Objective
from chunkwise.models.conformer import EncoderConfig
from chunkwise.models.context import ChunkingConfig, ChunkingKind, draw_context
from chunkwise.models.joiner import JoinerConfig
from chunkwise.models.predictor import PredictorConfig
from chunkwise.models.transducer import Transducer, TransducerConfig
from chunkwise.training.checkpoint import CheckpointFolder, load_newest, restore_training
from chunkwise.training.console import Console
from chunkwise.training.dashboard import NoDashboard
from chunkwise.training.distributed import World, open_world
from chunkwise.training.log import METRICS, RunLog, take_back
from chunkwise.training.loop import Outputs, TrainingConfig, train
from chunkwise.training.optimizer import OptimizerConfig, ScheduleConfig, build_optimizer, learning_rate
from chunkwise.training.precision import (
    GradScalerConfig,
    OnNonfiniteLoss,
    Precision,
    PrecisionConfig,
    PrecisionKind,
)
from chunkwise.training.runtime import Device, RuntimeConfig
from chunkwise.training.state import TrainState, Validation
from chunkwise.training.step import Parts

EPOCH_BATCHES = 5
VOCAB = 6
ALONE = RuntimeConfig(threads=1, device=Device.cpu)
TWO = RuntimeConfig(processes=2, threads=1, device=Device.cpu, timeout_s=60.0)
SCALING = GradScalerConfig(init_scale=64.0, growth_interval=3)
FP32 = PrecisionConfig(patience=4)
FORGIVING = replace(FP32, on_nonfinite_loss=OnNonfiniteLoss.skip)
FP16 = PrecisionConfig(kind=PrecisionKind.fp16, patience=4, grad_scaler=SCALING)


def tiny_objective(loss: LossConfig | None = None, dropout: float = 0.0, vocab_size: int = VOCAB) -> Objective:
    torch.manual_seed(0)
    encoder = EncoderConfig(
        d_model=16,
        num_layers=1,
        num_heads=2,
        feed_forward_dim=16,
        kernel_size=3,
        subsampling_channels=4,
        dropout=dropout,
    )
    config = TransducerConfig(
        encoder=encoder,
        predictor=PredictorConfig(dim=8, dropout=dropout),
        joiner=JoinerConfig(dim=8),
        num_mels=20,
        vocab_size=vocab_size,
    )
    return Objective(Transducer(config), loss or LossConfig(ctc_weight=0.3))


def tiny_parts(
    world: World,
    objective: Objective | None = None,
    dropout: float = 0.0,
    precision: PrecisionConfig = FP32,
    max_steps: int = 12,
) -> Parts:
    objective = objective or tiny_objective(dropout=dropout)
    optimizer_config = OptimizerConfig(lr=3e-3)
    chunking = ChunkingConfig(
        kind=ChunkingKind.dynamic, chunked_probability=0.5, min_chunk_frames=2, max_chunk_frames=4
    )
    return Parts(
        world=world,
        objective=objective,
        fbank=Fbank(FbankConfig(num_mels=20, dither=1e-4 if dropout else 0.0)),
        augment=mask if dropout else None,
        optimizer=build_optimizer(objective, optimizer_config),
        precision=Precision(precision, world.device),
        draw_context=partial(draw_context, chunking, 3),
        learning_rate=lambda step, share: learning_rate(
            optimizer_config, ScheduleConfig(warmup_steps=4), step, max_steps, share
        ),
        seed=3,
    )


def mask(features: Tensor, lengths: Tensor, generator: torch.Generator) -> Tensor:
    return features * (torch.rand(features.shape, generator=generator) > 0.1)


def batch(epoch: int, index: int) -> Batch:
    """Noise with random transcripts; a function of its place."""
    generator = torch.Generator().manual_seed(100 * epoch + index)
    utterances = []
    for number in range(2):
        samples = int(torch.randint(8_000, 12_000, (1,), generator=generator))
        tokens = torch.randint(1, VOCAB, (2 + number,), generator=generator).tolist()
        utterances.append(Utterance(f"{epoch}-{index}-{number}", "", torch.randn(samples, generator=generator), tokens))
    skipped = [Skip("broken", "broken.wav is empty")] if index == 1 else []
    return collate(utterances, skipped)


def stream(start: Position, world: World) -> Iterator[tuple[Position, Batch]]:
    """This rank's share of the endless stream, each batch with the position after its group."""
    place = start.epoch * EPOCH_BATCHES + start.batch
    while True:
        after = place + world.size
        yield Position(after // EPOCH_BATCHES, after % EPOCH_BATCHES), batch(*divmod(place + world.rank, EPOCH_BATCHES))
        place = after


def poisoned(batches: Iterator[tuple[Position, Batch]], bad: set[int]) -> Iterator[tuple[Position, Batch]]:
    """The same stream with infinite weights, hence losses, at some places."""
    for number, (position, item) in enumerate(batches):
        yield position, replace(item, weights=item.weights * torch.inf) if number in bad else item


def worsening() -> Callable[[], Validation]:
    """Validations 0.1, 0.2, ..., each after as many random draws."""
    calls: list[float] = []

    def validate() -> Validation:
        calls.append(torch.rand(7).sum().item())
        return Validation(wer=len(calls) / 10, loss=1.0)

    return validate


def run(
    folder: Path,
    config: TrainingConfig,
    *,
    world: World | None = None,
    parts: Parts | None = None,
    resume: bool = False,
    dropout: float = 0.0,
    bad: frozenset[int] = frozenset(),
    validate: Callable[[], Validation] | None = None,
) -> tuple[TrainState, dict[str, Tensor]]:
    """Train in `folder`; the state and the weights at the end."""
    world = world or open_world(ALONE)
    parts = parts or tiny_parts(world, dropout=dropout, max_steps=config.max_steps)
    state = TrainState(world_size=world.size)
    folder.mkdir(parents=True, exist_ok=True)
    log = RunLog(
        folder / METRICS if world.is_main else None, Console(config.max_steps, not world.is_main), NoDashboard()
    )
    checkpoints = CheckpointFolder(folder / "checkpoints", {"seed": 3}, b"tokenizer")
    if resume:
        checkpoint = load_newest(checkpoints.folder, log.say)
        assert checkpoint is not None
        state, _ = restore_training(checkpoint, parts.objective, parts.optimizer, parts.precision, world.size)
        if world.is_main:  # the other ranks have no log
            take_back(folder / METRICS, state.step)
    batches = poisoned(stream(state.position, world), set(bad))
    state = train(config, parts, batches, validate or worsening(), Outputs(log, checkpoints), state)
    return state, parts.objective.state_dict()


LOSSES = {
    "pruned": LossConfig(kind=LossKind.pruned, warmup_steps=4),
    "pruned, with CTC": LossConfig(kind=LossKind.pruned, ctc_weight=0.3, delay_penalty=0.1),
    "transducer": LossConfig(),
}
"""Every loss but the default one, which the other runs train with."""


def run_losses(folder: Path, config: TrainingConfig, world: World) -> dict[str, dict[str, Tensor]]:
    """The weights after training with each of the other losses."""
    return {
        name: run(folder / name, config, world=world, parts=tiny_parts(world, tiny_objective(loss)))[1]
        for name, loss in LOSSES.items()
    }


def run_as_one_of_two(
    folder: str, config: TrainingConfig, stop_at: int
) -> tuple[TrainState, dict[str, dict[str, Tensor]]]:
    """What a launched process does: a run that is cut and resumed, then one with each of the other losses."""
    with open_world(TWO) as world:
        run(Path(folder), replace(config, stop_at=stop_at), world=world, dropout=0.2)
        state, weights = run(Path(folder), config, world=world, resume=True, dropout=0.2)
        results = run_losses(Path(folder), replace(config, max_steps=3), world) | {"resumed": weights}
        for result in results.values():
            sums = world.gather_ragged(torch.stack([weight.double().sum() for weight in result.values()])[None])
            assert sums is None or torch.equal(sums[0], sums[1]), "the ranks' weights differ"
        return state, results


def run_spoilt_as_one_of_two(
    folder: str, config: TrainingConfig, precision: PrecisionConfig
) -> tuple[TrainState, dict[str, Tensor]]:
    """What a launched process does whose fellow, rank 1, meets an infinite loss in the second window."""
    with open_world(TWO) as world:
        bad = frozenset({1} if world.rank == 1 else ())
        state, weights = run(Path(folder), config, world=world, parts=tiny_parts(world, precision=precision), bad=bad)
        rows = torch.tensor([[state.step, state.skipped, *(float(w.double().sum()) for w in weights.values())]])
        told = world.gather_ragged(rows)
        assert told is None or torch.equal(told[0], told[1]), "the ranks disagree"
        return state, weights
