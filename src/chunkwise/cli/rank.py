"""One rank of a training run: everything from the config to the loop."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float, Int
from lhotse import CutSet
from torch import Tensor

from chunkwise.audio.augmentation import NoiseAddition, build_augmentation
from chunkwise.audio.fbank import Fbank
from chunkwise.cli import assembly
from chunkwise.config import TrainConfig, plain, to_yaml
from chunkwise.data.batches import Batch
from chunkwise.data.loading import listed, transcript
from chunkwise.data.samplers import TrainBatches, train_loader, trainable
from chunkwise.decoding.search import build_search
from chunkwise.evaluation.evaluate import evaluate
from chunkwise.evaluation.plots import plot_training_curve
from chunkwise.evaluation.recogniser import Recogniser
from chunkwise.evaluation.run_folder import RunFacts
from chunkwise.evaluation.typed_json import write_atomically
from chunkwise.evaluation.wer import ErrorCounts
from chunkwise.losses.objective import Objective
from chunkwise.models.context import FULL, ChunkContext, ChunkingConfig, ChunkingKind, draw_context, fixed_context
from chunkwise.text.tokenizer import Tokenizer, train_tokenizer
from chunkwise.training.checkpoint import Checkpoint, CheckpointFolder, load_newest, restore_training
from chunkwise.training.compilation import compile_training
from chunkwise.training.distributed import World, open_world
from chunkwise.training.log import METRICS, open_log
from chunkwise.training.loop import Outputs, train
from chunkwise.training.optimizer import build_optimizer, learning_rate
from chunkwise.training.precision import Precision
from chunkwise.training.state import TrainState, Validation
from chunkwise.training.step import Parts


def train_on_rank(config: TrainConfig, folder: Path, command: str) -> None:
    """Train as one rank of the world that this process finds itself in."""
    code = assembly.git_state()  # now: the checkout may change while this runs
    with open_world(config.runtime) as world:
        folder = Path(world.share_text(str(folder)))
        say = print if world.is_main else lambda text: None
        if world.is_main:
            write_atomically(folder / "config.yaml", to_yaml(config))
        corpus = assembly.shared_corpus(config.data, world)
        resumed = load_newest(folder / "checkpoints", say) if config.resume else None
        tokenizer = shared_tokenizer(config, corpus.splits["train"], folder, resumed, world)
        torch.manual_seed(config.seed)  # the initial weights; every later draw has a generator of its own
        model = assembly.build_model(config, tokenizer.vocab_size)
        parts = build_parts(config, Objective(model.to(world.device), config.loss).to(world.device), world)
        if config.runtime.compile:
            compile_training(parts.objective, world.device)
        cuts, skipped = trainable(
            corpus.splits["train"], tokenizer, parts.fbank, model.encoder.output_lengths,
            fastest=max(config.augment.speed_factors),
        )  # fmt: skip
        dataset = assembly.training_dataset(tokenizer, parts.fbank)
        state, notice = TrainState(world_size=world.size), None
        if resumed is None:
            mean, std = assembly.feature_statistics(cuts, dataset, parts.fbank, config.data, world)
            model.normalisation.set_statistics(mean, std)
        else:
            state, notice = restore_training(resumed, parts.objective, parts.optimizer, parts.precision, world.size)
        log = open_log(
            folder, config.logger, plain(config), max_steps=config.training.max_steps, step=state.step,
            is_main=world.is_main,
        )  # fmt: skip
        with log:
            for line in assembly.describe_skips(skipped, "utterances that cannot be trained on"):
                log.say(line)
            choices = (notice, parts.precision.notice, parts.objective.notice, describe_start(model, state, world))
            for line in filter(None, choices):
                log.say(line)
            batches = TrainBatches(
                cuts=listed(cuts),
                config=config.data,
                seed=config.seed,
                speed_factors=config.augment.speed_factors,
                perturbed_from=config.augment.from_epoch,
            )
            loader = train_loader(batches, dataset, state.position, world.rank, world.size)
            validator = Validator(config, parts, tokenizer, corpus.splits["dev"])
            outputs = Outputs(log, CheckpointFolder(folder / "checkpoints", plain(config), tokenizer.to_bytes()))
            state = train(config.training, parts, loader, validator, outputs, state)
        if world.is_main:
            facts(config, command, code, parts, cuts, state).write(folder)
            plot_training_curve(folder / METRICS, folder / "training_curve.png")
            say(f"run folder: {folder}")


def shared_tokenizer(
    config: TrainConfig, cuts: CutSet, folder: Path, resumed: Checkpoint | None, world: World
) -> Tokenizer:
    """The resumed run's tokenizer, or one that rank 0 trains on the training set's transcripts."""
    if resumed is not None:
        return Tokenizer.from_bytes(resumed.tokenizer)
    path = folder / "tokenizer.model"
    if world.is_main:
        train_tokenizer(map(transcript, cuts), config.tokenizer, path)
    world.barrier("making the tokenizer")
    return Tokenizer.load(path)


def build_parts(config: TrainConfig, objective: Objective, world: World) -> Parts:
    """What every optimizer step works with."""
    steps, optimizer, schedule = config.training.max_steps, config.optimizer, config.schedule
    return Parts(
        world=world,
        objective=objective,
        fbank=Fbank(config.features).to(world.device),
        augment=build_augmentation(config.augment),
        add_noise=NoiseAddition(config.augment) if config.augment.noise_snr_db else None,
        augment_from_epoch=config.augment.from_epoch,
        optimizer=build_optimizer(objective, optimizer),
        precision=Precision(config.precision, world.device),
        draw_context=partial(draw_context, config.chunking, config.seed),
        learning_rate=lambda step, time_share: learning_rate(optimizer, schedule, step, steps, time_share),
        seed=config.seed,
    )


@dataclass(frozen=True, slots=True)
class Validator:
    """Error rate and loss on the development set, in the contexts that the training prepares for."""

    config: TrainConfig
    parts: Parts
    tokenizer: Tokenizer
    cuts: CutSet

    def __call__(self) -> Validation:
        """Evaluate the model as it stands; over several contexts, the errors are added."""
        model = self.parts.objective.model
        recogniser = Recogniser(model, self.parts.fbank, self.tokenizer, build_search(self.config.decoding, model))
        counts, losses = ErrorCounts(), []
        for context in validation_contexts(self.config.chunking):
            result = evaluate(recogniser, self.cuts, context, self.config.eval, self.parts.world, self._losses)
            counts += result.counts
            losses.append(result.loss_per_token)
        known = [loss for loss in losses if loss is not None]
        return Validation(wer=counts.wer, loss=sum(known) / len(known) if known else None)

    def _losses(
        self,
        features: Float[Tensor, "batch frames mels"],
        lengths: Int[Tensor, " batch"],
        batch: Batch,
        context: ChunkContext,
    ) -> Float[Tensor, " batch"]:
        step = self.config.training.max_steps  # as after every warm-up, so that losses of all steps compare
        return self.parts.objective(features, lengths, batch.tokens, batch.token_lengths, context, step, None).total


def validation_contexts(config: ChunkingConfig) -> list[ChunkContext]:
    """The contexts that a training distribution is judged in: its own one, or full and 640 ms."""
    if config.kind in (ChunkingKind.full, ChunkingKind.fixed):
        return [fixed_context(config)]
    return [FULL, ChunkContext(16, None)]


def describe_start(model: torch.nn.Module, state: TrainState, world: World) -> str:
    """What is about to be trained, in a line."""
    where = f"{world.size} x {world.device.type.upper()}"
    return f"{count_parameters(model):,} parameters on {where}, from step {state.step}"


def count_parameters(model: torch.nn.Module) -> int:
    """How many numbers training adjusts."""
    return sum(parameter.numel() for parameter in model.parameters())


def facts(
    config: TrainConfig, command: str, code: tuple[str, bool], parts: Parts, cuts: CutSet, state: TrainState
) -> RunFacts:
    """What a record must know of the run besides its metrics."""
    device = f"{parts.world.size} x {parts.world.device.type.upper()}"
    if parts.world.device.type == "cpu":
        device += f" ({torch.get_num_threads()} threads each)"
    return RunFacts(
        command=command,
        commit=code[0],
        dirty=code[1],
        config=plain(config),
        parameters=count_parameters(parts.objective.model),
        train_s=round(state.seconds, 1),
        train_hours=round(assembly.hours(cuts), 3),
        device=device,
        torch=torch.__version__,
        lookahead_ms=1000 * parts.fbank.right / config.features.sample_rate_hz,
    )
