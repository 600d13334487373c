"""From configs and checkpoints to objects: what more than one command builds."""

import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import torch
from lhotse import CutSet

from chunkwise.audio.fbank import Fbank
from chunkwise.config import TrainConfig, restore
from chunkwise.data.corpora.config import DataConfig
from chunkwise.data.corpora.prepare import PreparedCorpus, prepare_corpus
from chunkwise.data.loading import BadAudio, SpeechDataset, listed, load_batches
from chunkwise.data.samplers import evaluation_batches
from chunkwise.data.skips import Skip
from chunkwise.data.statistics import Moments, feature_moments
from chunkwise.decoding.search import DecodingConfig, build_search
from chunkwise.evaluation.recogniser import Recogniser
from chunkwise.models.transducer import Transducer, TransducerConfig
from chunkwise.nn.linear import pack_weights
from chunkwise.text.tokenizer import Tokenizer
from chunkwise.training.checkpoint import Checkpoint, find_checkpoint, load_checkpoint, restore_model
from chunkwise.training.distributed import World

STATISTICS_UTTERANCES = 1000
"""How many training utterances, spread evenly over the set, the feature statistics are taken from."""


def shared_corpus(config: DataConfig, world: World) -> PreparedCorpus:
    """The corpus, prepared by rank 0 and then read by all."""
    world.sign("preparing the corpus")
    if world.is_main:
        corpus = prepare_corpus(config)
        print(describe_corpus(corpus), flush=True)
        world.barrier("reading the corpus")
        return corpus
    world.barrier("reading the corpus")
    return prepare_corpus(config)


def describe_corpus(corpus: PreparedCorpus) -> str:
    """What a preparation made or found, in a few lines."""
    lines = [f"{'found' if corpus.reused else 'prepared'} {corpus.folder}", *corpus.notes]
    for split, cuts in corpus.splits.items():
        lines.append(f"  {split}: {len(cuts)} utterances, {hours(cuts):.2f} hours")
    return "\n".join([*lines, *describe_skips(corpus.skipped, "recordings of the corpus")])


def hours(cuts: CutSet) -> float:
    """How much audio the cuts hold."""
    return sum(cut.duration for cut in listed(cuts)) / 3600


def describe_skips(skipped: Sequence[Skip], what: str, most: int = 20) -> list[str]:
    """What was left out, counted and each named once."""
    if not skipped:
        return []
    lines = [f"left out {len(skipped)} {what}:", *(f"  {skip.id}: {skip.reason}" for skip in skipped[:most])]
    return lines + ([f"  and {len(skipped) - most} more"] if len(skipped) > most else [])


def build_model(config: TrainConfig, vocab_size: int) -> Transducer:
    """The model that a training config describes, with fresh weights."""
    return Transducer(
        TransducerConfig(
            normalisation=config.normalisation,
            encoder=config.encoder,
            predictor=config.predictor,
            joiner=config.joiner,
            num_mels=config.features.num_mels,
            vocab_size=vocab_size,
        )
    )


def load_trained(path: str | None) -> tuple[Checkpoint, TrainConfig]:
    """The checkpoint under a path, and the config that it was trained with."""
    if path is None:
        raise ValueError("checkpoint=null must name a run folder or a checkpoint file; try checkpoint=runs/demo")
    checkpoint = load_checkpoint(find_checkpoint(Path(path)))
    return checkpoint, restore(checkpoint.config)


def checksum(path: str | None) -> str:
    """What tells the checkpoint under a path from every other."""
    return sha256(find_checkpoint(Path(str(path))).read_bytes()).hexdigest()


def load_recogniser(
    checkpoint: Checkpoint, config: TrainConfig, decoding: DecodingConfig, device: torch.device
) -> Recogniser:
    """The trained parts on the way from waveform to text."""
    tokenizer = Tokenizer.from_bytes(checkpoint.tokenizer)
    model = build_model(config, tokenizer.vocab_size)
    restore_model(model, checkpoint)
    model = model.to(device).eval()
    pack_weights(model)
    return Recogniser(model, Fbank(config.features).to(device).eval(), tokenizer, build_search(decoding, model))


def feature_statistics(
    cuts: CutSet, dataset: SpeechDataset, fbank: Fbank, config: DataConfig, world: World
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation per mel bin over the training set, the same on every rank."""
    sample = CutSet.from_cuts(listed(cuts)[:: max(1, len(cuts) // STATISTICS_UTTERANCES)])
    batches = load_batches(dataset, evaluation_batches(sample, config)[world.rank :: world.size])
    moments = feature_moments((batch.to(world.device) for batch in batches), fbank)
    moments = Moments(world.sum_values(moments.sums.flatten()).unflatten(0, moments.sums.shape))
    return moments.mean.float(), moments.std.float()


def training_dataset(tokenizer: Tokenizer, fbank: Fbank) -> SpeechDataset:
    """Batches of speech from which unreadable utterances are left out by name."""
    return SpeechDataset(tokenizer, fbank.config.sample_rate_hz, BadAudio.skip)


def git_state() -> tuple[str, bool]:
    """The commit of the code, and whether it was changed since; `unknown` outside a checkout."""

    def git(*arguments: str) -> str:
        where = Path(__file__).resolve().parent
        done = subprocess.run(["git", *arguments], cwd=where, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return "unknown", False
