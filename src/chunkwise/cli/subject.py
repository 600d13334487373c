"""What a dependency analysis looks at: a trained model or random weights, and a recording, an utterance or noise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from chunkwise.audio.fbank import Fbank
from chunkwise.audio.reading import read_audio
from chunkwise.audio.resampling import resample
from chunkwise.cli import assembly
from chunkwise.config import DependenciesConfig, TrainConfig, changed_data
from chunkwise.data.corpora.config import DataConfig
from chunkwise.data.loading import listed, load_waveform
from chunkwise.models.transducer import Transducer
from chunkwise.training.distributed import World

SHAPE = ("features", "normalisation", "encoder", "predictor", "joiner")
RANDOM_VOCABULARY = 29
"""Output units of random weights: as many as letters, apostrophe, space and blank."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, how its tokens are spelt, and what it hears (`None`: noise)."""

    model: Transducer
    fbank: Fbank
    spell: Callable[[int], str]
    waveform: Float[Tensor, " samples"] | None
    source: str


def load_subject(config: DependenciesConfig, overrides: Sequence[str], data_chosen: bool, world: World) -> Subject:
    """What the config names; a shape that a checkpoint overrules is refused."""
    given = [override for override in overrides if override.lstrip("+~").split("=")[0].split(".")[0] in SHAPE]
    if config.checkpoint is None:
        torch.manual_seed(config.seed)
        trained = TrainConfig(**{name: getattr(config, name) for name in SHAPE})
        model, fbank = assembly.build_model(trained, RANDOM_VOCABULARY), Fbank(config.features)
        features = fbank(torch.randn(1, config.features.sample_rate_hz), torch.tensor([config.features.sample_rate_hz]))
        model.normalisation.set_statistics(features[0][0].mean(dim=0), features[0][0].std(dim=0))
        model, fbank = model.to(world.device), fbank.to(world.device)
        return Subject(model, fbank, lambda token: f"<{token}>", *_recording(config, fbank))
    if given:
        raise ValueError(f"{given[0]} has no effect on the model of checkpoint={config.checkpoint}; leave one out")
    checkpoint, trained = assembly.load_trained(config.checkpoint)
    recogniser = assembly.load_recogniser(checkpoint, trained, config.decoding, world.device)
    heard = _recording(config, recogniser.fbank)
    if config.utterance is not None:
        heard = _utterance(config.utterance, changed_data(trained.data, config.data, data_chosen), trained, world)
    tokenizer = recogniser.tokenizer
    return Subject(recogniser.model, recogniser.fbank, lambda token: tokenizer.decode([token]) or "␣", *heard)


def _recording(config: DependenciesConfig, fbank: Fbank) -> tuple[Float[Tensor, " samples"] | None, str]:
    """The recording at the model's rate, or nothing."""
    if config.audio is None:
        return None, f"noise of {config.analysis.frames} encoder frames"
    waveform, rate_hz = read_audio(Path(config.audio))
    return resample(waveform, rate_hz, fbank.config.sample_rate_hz), Path(config.audio).name


def _utterance(
    name: str, data: DataConfig, trained: TrainConfig, world: World
) -> tuple[Float[Tensor, " samples"], str]:
    """An utterance of the test set."""
    cuts = {cut.id: cut for cut in listed(assembly.shared_corpus(data, world).splits["test"])}
    if name != "first" and name not in cuts:
        raise ValueError(f"utterance={name} is not in the test set of {data.corpus}; try utterance={next(iter(cuts))}")
    cut = next(iter(cuts.values())) if name == "first" else cuts[name]
    return load_waveform(cut, trained.features.sample_rate_hz), cut.id
