"""One optimizer step: its window of micro-batches, the loss over all ranks, and the guarded update."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from chunkwise.audio.augmentation import FeatureAugmentation, WaveformAugmentation
from chunkwise.audio.fbank import Fbank
from chunkwise.data.batches import Batch
from chunkwise.data.samplers import Position
from chunkwise.data.skips import Skip
from chunkwise.losses.objective import Objective
from chunkwise.models.context import ChunkContext
from chunkwise.training.distributed import World
from chunkwise.training.optimizer import set_learning_rate
from chunkwise.training.precision import Precision, StepOutcome
from chunkwise.training.seeding import seed_step
from chunkwise.training.state import TrainState
from chunkwise.typing import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The objects that a step works with."""

    world: World
    objective: Objective
    fbank: Fbank
    augment: FeatureAugmentation | None
    optimizer: Optimizer
    precision: Precision
    draw_context: Callable[[int], ChunkContext]  # by step
    learning_rate: Callable[[int, float], float]  # by step, from 1, and the used share of the time
    seed: int
    add_noise: WaveformAugmentation | None = None
    augment_from_epoch: int = 0

    def train_mode(self, training: bool) -> None:
        """Dropout, dither and augmentation on, or off for validation."""
        self.objective.train(training)
        self.fbank.train(training)


@dataclass(frozen=True, slots=True)
class Window:
    """The micro-batches of one step on this rank, and what they come to on all ranks."""

    batches: list[Batch]
    tokens: float
    epochs: list[int]  # of each batch
    skipped: list[str]  # on rank 0: the utterances that could not be used and were not named before, with the reason

    def share(self, world: World) -> float:
        """What summed losses are multiplied by: the ranks' gradients are averaged, their sum per token is wanted."""
        return world.size / max(self.tokens, 1.0)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in training a window stands, and what its frames may see: what is drawn in it follows from this."""

    step: int
    window: int
    context: ChunkContext


@dataclass(frozen=True, slots=True)
class Update:
    """What a step did."""

    loss: float  # per token, over all ranks
    rate: float  # the learning rate
    place: Place
    outcome: StepOutcome


class Meter:
    """The clock of training time, and the throughput since the last look at it; runs inside `with`."""

    def __init__(self, seconds: Seconds) -> None:
        self.total = seconds
        self.began: float | None = None
        self.seconds_before = seconds
        self.audio_s = self.samples = self.padded_samples = self.wait_s = 0.0

    @property
    def seconds(self) -> Seconds:
        """Training time so far."""
        return self.total + (0.0 if self.began is None else time.perf_counter() - self.began)

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.total, self.began = self.seconds, None

    def take(self) -> dict[str, float]:
        """Throughput since the last call: audio per second over all ranks, and the shares of padding and waiting."""
        elapsed = max(self.total - self.seconds_before, 1e-9)
        taken = {
            "audio_s_per_s": self.audio_s / elapsed,
            "padding": 1 - self.samples / max(self.padded_samples, 1.0),
            "data_wait": self.wait_s / elapsed,
        }
        self.seconds_before = self.total
        self.audio_s = self.samples = self.padded_samples = self.wait_s = 0.0
        return taken


def next_window(
    batches: Iterator[tuple[Position, Batch]], count: int, parts: Parts, state: TrainState, meter: Meter
) -> Window:
    """The next `count` micro-batches; moves the state's position, and its clock to that of rank 0.

    One exchange between the ranks tells each the window's token count, so that the loss per token is the same however
    the batches are spread.
    """
    began = time.perf_counter()
    taken = [next(batches) for _ in range(count)]
    meter.wait_s += time.perf_counter() - began
    state.position = taken[-1][0]
    local = [batch for _, batch in taken]
    unusable = [skip for batch in local for skip in batch.skipped if skip.id not in state.unusable]
    sums = parts.world.sum_values(
        torch.tensor(
            [
                sum(float((batch.token_lengths * batch.weights).sum()) for batch in local),
                sum(float(batch.lengths.sum()) for batch in local),
                sum(float(batch.waveforms.numel()) for batch in local),
                float(len(unusable)),
                meter.seconds if parts.world.is_main else 0.0,
            ],
            dtype=torch.float64,
        )
    )
    tokens, samples, padded_samples, num_unusable, state.seconds = sums.tolist()
    skipped = _told(parts.world, unusable, state) if num_unusable else []
    meter.samples += samples
    meter.padded_samples += padded_samples
    meter.audio_s += samples / parts.fbank.config.sample_rate_hz
    state.audio_s += samples / parts.fbank.config.sample_rate_hz
    return Window(
        [batch.to(parts.world.device) for batch in local], tokens, [position.epoch for position, _ in taken], skipped
    )


def _told(world: World, skips: list[Skip], state: TrainState) -> list[str]:
    """The utterances that any rank had to skip, remembered on rank 0, each as `id: reason`."""
    texts = world.gather_texts([text for skip in skips for text in (skip.id, skip.reason)])
    state.unusable |= {skip.id for skip in skips}
    if texts is None:
        return []
    named = dict(zip(texts[::2], texts[1::2], strict=True))
    state.unusable |= named.keys()
    return [f"{name}: {reason}" for name, reason in named.items()]


def take_step(
    module: nn.Module, parts: Parts, window: Window, rate: float, max_grad_norm: float, state: TrainState
) -> Update:
    """Forward and backward of every micro-batch, then the update; a dropped window only counts as dropped."""
    world, place = parts.world, Place(state.step, state.window, parts.draw_context(state.step))
    total = torch.zeros(1, dtype=torch.float64, device=world.device)
    for number in range(len(window.batches)):
        with world.accumulating(module, last=number + 1 == len(window.batches)):
            loss = batch_losses(module, parts, window, number, place).sum()
            parts.precision.backward(loss * window.share(world))
        total += loss.detach()
    set_learning_rate(parts.optimizer, rate)
    outcome = parts.precision.step(parts.optimizer, max_grad_norm)
    state.count(outcome.skipped)
    loss_per_token = float(world.sum_values(total)) / max(window.tokens, 1.0)
    return Update(loss_per_token, rate, place, outcome)


def batch_losses(module: nn.Module, parts: Parts, window: Window, number: int, place: Place) -> Float[Tensor, " batch"]:
    """The loss of each utterance of micro-batch `number`; with the same parameters the same, however often asked."""
    batch, augmented = window.batches[number], window.epochs[number] >= parts.augment_from_epoch
    world = parts.world
    generator = seed_step(parts.seed, place.window, number * world.size + world.rank, world.device)
    waveforms = batch.waveforms
    if augmented and parts.add_noise is not None:
        waveforms = parts.add_noise(waveforms, batch.lengths, generator)
    with torch.no_grad():
        features, lengths = parts.fbank(waveforms, batch.lengths, generator)
    draw = parts.augment if augmented else None
    augment = None if draw is None else lambda features, lengths: draw(features, lengths, generator)
    with parts.precision.autocast():
        losses = module(features, lengths, batch.tokens, batch.token_lengths, place.context, place.step, augment)
    return losses.total * batch.weights
