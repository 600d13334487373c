"""The training loop."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chunkwise.data.batches import Batch
from chunkwise.data.samplers import Position
from chunkwise.training.checkpoint import CheckpointFolder
from chunkwise.training.diagnosis import stop_with_diagnosis
from chunkwise.training.log import RunLog
from chunkwise.training.state import TrainState, Validation
from chunkwise.training.step import Meter, Parts, Update, Window, next_window, take_step


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """The loop's own numbers."""

    max_steps: int = 1000  # optimizer steps; the schedule ends here
    max_seconds: float | None = None  # stop cleanly after this much training time
    stop_at: int | None = None  # stop cleanly after this step; the schedule is not changed
    accumulate: int = 1  # batches per optimizer step and rank
    max_grad_norm: float = 5.0
    validate_every: int = 200  # steps; 0: only at the end
    save_every: int = 200  # steps; 0: only at the end

    def __post_init__(self) -> None:
        """Refuse a loop that could not run or end."""
        for name, usual in (("max_steps", 1000), ("accumulate", 1)):
            if getattr(self, name) < 1:
                raise ValueError(f"training.{name}={getattr(self, name)} must be at least 1; try {usual}")
        for name in ("validate_every", "save_every"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"training.{name}={getattr(self, name)} must not be negative; try 200, or 0 for the end only"
                )
        if not self.max_grad_norm > 0:
            raise ValueError(f"training.max_grad_norm={self.max_grad_norm} must be positive; try 5")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"training.max_seconds={self.max_seconds} must be positive; try 600, or null for no limit")
        if self.stop_at is not None and self.stop_at < 1:
            raise ValueError(f"training.stop_at={self.stop_at} must be at least 1; try null")

    def is_complete(self, state: TrainState) -> bool:
        """Whether the run has had all its steps, or all its time."""
        return state.step >= self.max_steps or (self.max_seconds is not None and state.seconds >= self.max_seconds)

    def is_over(self, state: TrainState) -> bool:
        """Whether the run is complete, or is to pause here."""
        return self.is_complete(state) or (self.stop_at is not None and state.step >= self.stop_at)

    def time_share(self, state: TrainState) -> float:
        """The share of `max_seconds` that is used up."""
        return 0.0 if self.max_seconds is None else min(1.0, state.seconds / self.max_seconds)


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a run's records and checkpoints go."""

    log: RunLog
    checkpoints: CheckpointFolder


def train(
    config: TrainingConfig,
    parts: Parts,
    batches: Iterator[tuple[Position, Batch]],
    validate: Callable[[], Validation],
    outputs: Outputs,
    state: TrainState,
) -> TrainState:
    """Train until the steps or the time are used up, or to `stop_at`; `state` moves from where it stands.

    Every rank calls this with its own share of the batches, and all take the same turns.
    """
    if config.is_over(state):
        outputs.log.say(f"nothing left to train: the run stands at step {state.step} of {config.max_steps}")
    parts.train_mode(True)
    module = parts.world.wrap(parts.objective)
    meter = Meter(state.seconds)
    drawn = Counter(parts.draw_context(step).chunk_frames for step in range(state.step))  # a resumed run's share
    saved = state.step  # a resumed run stands where it was saved
    while not config.is_over(state):
        with meter:
            window = next_window(batches, config.accumulate, parts, state, meter)
            rate = parts.learning_rate(state.step + 1, config.time_share(state))
            update = take_step(module, parts, window, rate, config.max_grad_norm, state)
        _report(config, outputs.log, window, update, state, meter)
        if update.outcome.skipped:
            if fault := parts.precision.fault(update.loss, state.skipped_in_a_row):
                stop_with_diagnosis(fault, parts, window, update, outputs.log)
            continue
        drawn[update.place.context.chunk_frames] += 1
        if _is_due(config.validate_every, state.step):
            _validate(validate, parts, outputs, state)
            outputs.log.histogram("chunk_frames", state.step, drawn)
        if _is_due(config.save_every, state.step):
            _save(parts, outputs, state)
            saved = state.step
    if config.is_complete(state) and state.validated_step != state.step:
        _validate(validate, parts, outputs, state)
        outputs.log.histogram("chunk_frames", state.step, drawn)
        saved = -1  # the newest checkpoint is to know of it
    if saved != state.step:
        _save(parts, outputs, state)
    parts.world.barrier("keeping the last checkpoint")  # nobody reads a checkpoint that is still being written
    return state


def _is_due(every: int, step: int) -> bool:
    return every > 0 and step % every == 0


def _validate(validate: Callable[[], Validation], parts: Parts, outputs: Outputs, state: TrainState) -> None:
    parts.train_mode(False)
    validation = validate()
    parts.train_mode(True)
    state.validated_step = state.step
    improved = state.improved(validation)
    wer = "no words" if validation.wer is None else f"{100 * validation.wer:.2f} %"
    loss = "" if validation.loss is None else f"  loss {validation.loss:.4f}"
    outputs.log.say(f"step {state.step}: validation WER {wer}{loss}{'  (best so far)' if improved else ''}")
    record = {"step": state.step, "seconds": state.seconds, "validation_wer": validation.wer}
    outputs.log.record(record | {"validation_loss": validation.loss})
    if improved and parts.world.is_main:
        outputs.checkpoints.save_best(parts.objective, parts.optimizer, parts.precision, state)


def _save(parts: Parts, outputs: Outputs, state: TrainState) -> None:
    if parts.world.is_main:
        outputs.checkpoints.save(parts.objective, parts.optimizer, parts.precision, state)


def _report(
    config: TrainingConfig, log: RunLog, window: Window, update: Update, state: TrainState, meter: Meter
) -> None:
    """Keep what every step did; say it every few steps, at the first and the last, and whenever a window is dropped."""
    outcome, context = update.outcome, update.place.context
    for name_and_reason in window.skipped:
        log.say(f"skipped utterance {name_and_reason} ({len(state.unusable)} in all)")
    is_shown = _is_due(log.every_steps, state.step) or state.step == 1 or config.is_complete(state)
    throughput = meter.take() if is_shown or outcome.skipped else {}
    log.record(
        {
            "step": state.step,
            "epoch": state.position.epoch,
            "seconds": state.seconds,
            "loss": update.loss,
            "lr": update.rate,
            "grad_norm": outcome.grad_norm,
            "scale": outcome.scale,
            "skipped_steps": state.skipped,
            "skipped_utterances": len(state.unusable),
            "chunk_frames": context.chunk_frames,
            "left_chunks": context.left_chunks,
            **throughput,
        }
    )
    if outcome.skipped:
        log.say(
            f"step {state.step + 1}: a loss or gradient is not finite, the window is dropped "
            f"({state.skipped} so far, loss scale {outcome.scale:g})"
        )
    if throughput:
        log.console.step(
            state.step,
            f"step {state.step}/{config.max_steps}  loss {update.loss:.4f}  lr {update.rate:.2e}  "
            f"norm {outcome.grad_norm:.2f}  {context.label}  {throughput['audio_s_per_s']:.0f} s of audio/s",
        )
