"""The whole analysis of one model in one context: layers, features, samples and tokens.

The idea of poking frames to find what a streaming model sees is SpeechBrain's (`infer_dependency_matrix`); this one
pokes many frames in one forward, has gradients as a second method, and knows the exact answer.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from chunkwise.analysis.comparison import Dependence, DependencyError
from chunkwise.analysis.measurement import NumberFormat, gradient_strengths, poke_strengths
from chunkwise.analysis.systems import System, features_system, frozen, layers_system, samples_system
from chunkwise.analysis.tokens import decision_system, token_systems
from chunkwise.audio.fbank import Fbank
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.decoding.search import DecodingConfig, build_search, decode
from chunkwise.models.context import ChunkContext
from chunkwise.models.transducer import Transducer
from chunkwise.streaming.latency import lookahead_samples

NOISE_LEVEL = 0.1
SAMPLES_BETWEEN = 64
"""Besides where dependencies should begin and end, so many samples, evenly spread, are poked."""

LONGEST_S = 10.0
"""Longer audio gives matrices of raw samples that are too large to keep."""


class Method(StrEnum):
    """How dependencies are measured."""

    both = "both"
    gradient = "gradient"
    perturbation = "perturbation"


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyConfig:
    """How dependencies are measured, and on how much noise where there is no recording."""

    frames: int = 24  # encoder frames (40 ms) of noise
    method: Method = Method.both
    draws: int = 2  # of pokes, output weights and noise
    poke: float = 1.0  # root mean square of a poke, in the input's own unit
    number_format: NumberFormat = NumberFormat.float64
    samples: bool = True  # also from raw samples, which takes longest
    batch_rows: int = 64  # pokes, or outputs to differentiate, per forward

    def __post_init__(self) -> None:
        for name in ("frames", "draws", "batch_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"analysis.{name}={getattr(self, name)} must be 1 or more")
        if not 0 < self.poke < float("inf"):
            raise ValueError(f"analysis.poke={self.poke} must be a finite number above 0; try 1")


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything that was measured, by the names of the systems."""

    context: ChunkContext
    dependences: dict[str, Dependence]
    hypothesis: Hypothesis
    features: Float[Tensor, "frames mels"]
    declared_lookahead: int | None  # samples that the first frame of a chunk needs, by the streaming session's account

    @property
    def measured_lookahead(self) -> int | None:
        """The samples that a chunk was seen to need, counted from its start."""
        found = self.dependences.get("frames_from_samples")
        return found.lookahead(self.context) if found else None

    def check(self) -> None:
        """Raise a `DependencyError` for the first constraint that does not hold."""
        for dependence in self.dependences.values():
            dependence.check()
        measured, declared = self.measured_lookahead, self.declared_lookahead
        if measured is not None and declared is not None and measured > declared:
            raise DependencyError(f"a chunk needs {measured} samples from its start on, but {declared} are declared")


class Analyst:
    """Measures systems in the way that the config says."""

    def __init__(self, config: DependencyConfig, seed: int, device: torch.device | None = None) -> None:
        self.config = config
        self.device = device
        self.generator = torch.Generator().manual_seed(seed)

    def noise(self, *shape: int) -> Tensor:
        """Standard normal noise, the same for the same seed and calls."""
        noise = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return noise.to(self.device, self.config.number_format.dtype)

    def measure(
        self, system: System, bases: Float[Tensor, "draws inputs channels"], positions: Int[Tensor, " positions"]
    ) -> Dependence:
        """A system's dependencies around these inputs; pokes go to `positions`."""
        config, tolerance = self.config, self.config.number_format.tolerance
        gradient = perturbation = None
        positions = positions.to(bases.device)
        if config.method is not Method.perturbation and not system.name.startswith("decision"):
            different = bases[:1] if system.outputs == "token" else bases  # a score around one input has one gradient
            gradient = gradient_strengths(
                system.function, different, len(system.expected), tolerance, self.generator, config.batch_rows
            )
        if config.method is not Method.gradient:
            perturbation = poke_strengths(
                system.function, bases, positions, tolerance, self.generator, config.poke, config.batch_rows
            )
        return Dependence(system, gradient and gradient.cpu(), perturbation and perturbation.cpu())


def analyse(
    model: Transducer,
    fbank: Fbank,
    decoding: DecodingConfig,
    context: ChunkContext,
    config: DependencyConfig,
    waveform: Float[Tensor, " samples"] | None = None,
    seed: int = 0,
) -> Analysis:
    """What encoder frames and tokens depend on, on a recording at the model's rate or else on noise."""
    device, dtype = next(model.parameters()).device, config.number_format.dtype
    analyst = Analyst(config, seed, device)
    model, fbank = cast(Transducer, frozen(model, dtype)), cast(Fbank, frozen(fbank, dtype))
    search = build_search(decoding, model)
    waveforms = _waveforms(waveform, fbank, analyst)
    lengths = torch.full((len(waveforms),), waveforms.shape[1], device=device)
    features, feature_lengths = fbank(waveforms, lengths)
    encoded, encoded_lengths = model.encode(features[:1], feature_lengths[:1], context)
    hypothesis = decode(search, encoded, encoded_lengths)[0]

    layers = layers_system(model, encoded.shape[1], context)
    bases = {layers.name: analyst.noise(config.draws, encoded.shape[1], encoded.shape[2])}
    systems = [layers, features_system(model, features.shape[1], context)]
    bases[systems[-1].name] = features
    if config.samples:
        systems.append(samples_system(model, fbank, waveforms.shape[1], context))
        bases[systems[-1].name] = waveforms[:, :, None]
    for below in systems[1:] if hypothesis.tokens else []:
        for system in [*token_systems(model, below, hypothesis), decision_system(below, hypothesis, search)]:
            systems.append(system)
            bases[system.name] = bases[below.name][:1].expand(config.draws, -1, -1)  # the one that was decoded
    dependences = {s.name: analyst.measure(s, bases[s.name], _positions(s)) for s in systems}
    return Analysis(context, dependences, hypothesis, features[0].float().cpu(), lookahead_samples(fbank, context))


def _waveforms(waveform: Tensor | None, fbank: Fbank, analyst: Analyst) -> Float[Tensor, "draws samples"]:
    """One recording for all draws, or a draw of noise for each."""
    config = analyst.config
    if waveform is None:
        return NOISE_LEVEL * analyst.noise(
            config.draws, config.frames * Transducer.frames_per_encoder_frame * fbank.stride
        )
    duration_s = len(waveform) / fbank.config.sample_rate_hz
    if fbank.num_frames(len(waveform)) == 0:
        raise ValueError(f"the recording of {duration_s:.3f} s is too short for a feature frame; choose a longer one")
    if config.samples and duration_s > LONGEST_S:
        raise ValueError(
            f"analysis.samples=true takes at most {LONGEST_S:.0f} s of audio, not {duration_s:.1f} s; "
            "cut the recording, or set analysis.samples=false"
        )
    return waveform.to(analyst.device, config.number_format.dtype).expand(config.draws, -1)


def _positions(system: System) -> Int[Tensor, " positions"]:
    """Where to poke: everywhere, but of raw samples only where rows begin and end, on both sides, and some between."""
    num_inputs = system.expected.shape[1]
    if system.inputs != "sample":
        return torch.arange(num_inputs)
    edges = (system.expected[:, 1:] != system.expected[:, :-1]).any(dim=0).nonzero()[:, 0]
    between = torch.linspace(0, num_inputs - 1, min(SAMPLES_BETWEEN, num_inputs)).round().long()
    return torch.cat((edges, edges + 1, between)).unique()
