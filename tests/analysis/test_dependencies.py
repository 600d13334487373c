"""Encoders and tokens keep to what they may see, by both methods; a planted leak is caught and its frames named."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from chunkwise.analysis.comparison import Dependence, DependencyError
from chunkwise.analysis.dependencies import Analysis, Analyst, DependencyConfig, Method, analyse
from chunkwise.analysis.expectation import encoder_reach
from chunkwise.analysis.measurement import NumberFormat, poke_strengths
from chunkwise.analysis.systems import features_system, layers_system, samples_system
from chunkwise.analysis.tokens import decision_system
from chunkwise.audio.fbank import Fbank
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.decoding.search import DecodingConfig, DecodingKind, build_search
from chunkwise.models.conformer import AttentionKind
from chunkwise.models.context import FULL, ChunkContext
from chunkwise.models.normalisation import NormalisationConfig
from chunkwise.models.transducer import Transducer
from chunkwise.nn.convolution import ChunkConvolution
from chunkwise.nn.subsampling import Subsampling
from chunkwise.streaming.latency import lookahead_samples

CHUNKED = ChunkContext(4, 1)
QUICK = DependencyConfig(samples=False)


def layers(model: Transducer, context: ChunkContext, config: DependencyConfig = QUICK) -> Dependence:
    analyst = Analyst(config, seed=0)
    system = layers_system(model.to(config.number_format.dtype).requires_grad_(False), 24, context)
    return analyst.measure(system, analyst.noise(2, 24, 16), torch.arange(24))


def leaky(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the convolution look over its chunk's border."""
    mix = ChunkConvolution.mix
    monkeypatch.setattr(ChunkConvolution, "mix", lambda self, gated, valid, _: mix(self, gated, valid, None))


@pytest.mark.parametrize(("context", "count"), [(CHUNKED, 304), (ChunkContext(4, None), 336), (FULL, 576)])
def test_two_layers_over_24_frames_have_exactly_the_expected_dependencies(
    model: Transducer, context: ChunkContext, count: int
) -> None:
    found = layers(model, context)
    for strengths in found.methods.values():
        assert int(strengths.seen.sum()) == count
        assert torch.equal(strengths.seen, found.system.expected)
    found.check()


@pytest.mark.parametrize("attention", list(AttentionKind))
@pytest.mark.parametrize("context", [ChunkContext(1, 0), ChunkContext(5, 2), ChunkContext(16), ChunkContext(64, 1)])
def test_both_methods_see_exactly_what_may_be(
    model: Transducer, attention: AttentionKind, context: ChunkContext
) -> None:
    shape = replace(model.config.encoder, attention=attention, num_layers=1, kernel_size=7)
    other = Transducer(replace(model.config, encoder=shape)).eval()
    for strengths in layers(other, context).methods.values():
        assert torch.equal(strengths.seen, encoder_reach(24, shape, context))


def test_a_running_mean_lets_frames_depend_on_all_earlier_ones(model: Transducer) -> None:
    other = Transducer(replace(model.config, normalisation=NormalisationConfig(prior_frames=10))).double().eval()
    system = features_system(other.requires_grad_(False), 48, ChunkContext(2, 0))
    analyst = Analyst(QUICK, seed=0)
    found = analyst.measure(system, analyst.noise(1, 48, 40), torch.arange(48))
    for strengths in found.methods.values():
        assert torch.equal(strengths.seen, system.expected)
    assert system.expected[10].nonzero()[:, 0].tolist() == list(range(48))
    assert system.expected[7].nonzero()[:, 0].tolist() == list(range(32))


def test_a_leak_in_the_convolution_is_caught_and_its_frames_are_named(
    model: Transducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaky(monkeypatch)
    found = layers(model, CHUNKED)
    assert [int(strengths.seen.sum()) for strengths in found.methods.values()] == [416, 416]
    assert int(found.violations.sum()) == 416 - 304
    with pytest.raises(DependencyError, match=r"encoder frame 0 on subsampled frames 4-7 \(allowed: 0-3\)"):
        found.check()


@pytest.mark.parametrize("method", [Method.gradient, Method.perturbation])
def test_each_method_alone_catches_the_leak(model: Transducer, monkeypatch: pytest.MonkeyPatch, method: Method) -> None:
    leaky(monkeypatch)
    with pytest.raises(DependencyError, match=r"encoder frame 3 on .*; and \d+ more encoder frames"):
        layers(model, CHUNKED, replace(QUICK, method=method)).check()


def test_subsampling_that_looks_ahead_is_caught(
    model: Transducer, fbank: Fbank, monkeypatch: pytest.MonkeyPatch
) -> None:
    halve = Subsampling.halve

    def early(x: Tensor, lengths: Tensor, conv: torch.nn.Conv2d) -> Tensor:
        return halve(x.roll(-1, dims=2), lengths, conv)

    monkeypatch.setattr(Subsampling, "halve", staticmethod(early))
    with pytest.raises(DependencyError, match=r"frames_from_features .*encoder frame 3 on feature frames 16"):
        analyse(model, fbank, DecodingConfig(), CHUNKED, QUICK).check()


@pytest.mark.parametrize("poke", [1e-3, 1.0, 1e10])
def test_float32_agrees_with_gradients_for_small_and_huge_pokes(model: Transducer, poke: float) -> None:
    config = replace(QUICK, number_format=NumberFormat.float32, poke=poke)
    found = layers(model, ChunkContext(4, None), config)  # whose faintest dependencies float32 can tell from rounding
    found.check()
    gradient, perturbation = found.methods.values()
    assert torch.equal(gradient.seen, found.system.expected)
    if poke == 1e-3:  # what is missed is below the resolution
        missed = found.system.expected & ~perturbation.seen
        assert bool((gradient.values < 10 * perturbation.threshold[:, None])[missed].all())
        assert int(perturbation.seen.sum()) > 0.5 * int(found.system.expected.sum())
    else:
        assert torch.equal(perturbation.seen, found.system.expected)


@pytest.mark.parametrize("chunk_frames", [1, 4, 16])
def test_look_ahead_is_as_declared_to_the_sample(model: Transducer, fbank: Fbank, chunk_frames: int) -> None:
    context = ChunkContext(chunk_frames, None)
    model, fbank = model.double(), deepcopy(fbank).double()
    stride = Transducer.frames_per_encoder_frame * fbank.stride
    declared = lookahead_samples(fbank, context)
    assert declared is not None
    start = chunk_frames * stride  # of the second chunk
    last = start + declared - 1
    num_samples = (2 * chunk_frames + 3) * stride
    system = samples_system(model, fbank, num_samples, context)
    waveform = 0.1 * torch.randn(1, num_samples, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    positions = torch.cat((torch.arange(last - 3, last + 4), torch.tensor([last + 100, num_samples - 1])))
    with torch.no_grad():
        found = poke_strengths(system.function, waveform, positions, 1e-10, torch.Generator().manual_seed(0))
    chunk = found.seen[chunk_frames : 2 * chunk_frames]
    assert chunk.all(dim=0).tolist() == [True] * 4 + [False] * 5
    assert chunk.any(dim=0).tolist() == [True] * 4 + [False] * 5


def full_analysis(
    model: Transducer, fbank: Fbank, waveform: Tensor, context: ChunkContext, decoding: DecodingConfig
) -> Analysis:
    config = DependencyConfig(poke=3.0)
    return analyse(model, fbank, decoding, context, config, waveform)


@pytest.mark.parametrize("context", [CHUNKED, FULL], ids=lambda context: context.label)
def test_everything_from_samples_to_decisions_keeps_to_what_may_be(
    model: Transducer, fbank: Fbank, waveform: Tensor, context: ChunkContext
) -> None:
    analysis = full_analysis(model, fbank, waveform, context, DecodingConfig(max_symbols_per_frame=2))
    analysis.check()
    assert len(analysis.hypothesis.tokens) >= 3
    assert analysis.measured_lookahead == analysis.declared_lookahead
    for name, found in analysis.dependences.items():
        if not name.startswith("decision"):
            assert not found.unseen.any(), name
    assert analysis.dependences["decision_from_features"].seen.any(), "no poke changed a decision"


def test_a_leak_shows_in_tokens_too(
    model: Transducer, fbank: Fbank, waveform: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaky(monkeypatch)
    analysis = full_analysis(model, fbank, waveform, CHUNKED, DecodingConfig(max_symbols_per_frame=2))
    for name in ("emission_from_samples", "path_from_features"):
        with pytest.raises(DependencyError, match=f"{name} depends on what it must not see: token"):
            analysis.dependences[name].check()
    measured, declared = analysis.measured_lookahead, analysis.declared_lookahead
    assert measured is not None
    assert declared is not None
    assert measured > declared


def test_beam_search_may_decide_at_the_end(model: Transducer, fbank: Fbank, waveform: Tensor) -> None:
    full_analysis(model, fbank, waveform, CHUNKED, DecodingConfig(kind=DecodingKind.beam)).check()
    below, early = features_system(model, 80, CHUNKED), Hypothesis([1], [0], 0.0)
    for kind, seen in ((DecodingKind.greedy, below.expected[0]), (DecodingKind.beam, below.expected.any(dim=0))):
        search = build_search(DecodingConfig(kind=kind), model)
        assert torch.equal(decision_system(below, early, search).expected[0], seen)


def test_audio_that_does_not_fit_is_refused(model: Transducer, fbank: Fbank) -> None:
    with pytest.raises(ValueError, match="too short for a feature frame"):
        analyse(model, fbank, DecodingConfig(), FULL, QUICK, torch.zeros(10))
    with pytest.raises(ValueError, match=r"at most 10 s of audio, not 11\.0 s; .*analysis\.samples=false"):
        analyse(model, fbank, DecodingConfig(), FULL, DependencyConfig(), torch.zeros(176_000))


def test_settings_without_meaning_are_refused() -> None:
    for name in ("frames", "draws", "batch_rows"):
        with pytest.raises(ValueError, match=rf"analysis\.{name}=0 must be 1 or more"):
            replace(QUICK, **{name: 0})
    for poke in (0.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"analysis\.poke=.* must be a finite number above 0; try 1"):
            DependencyConfig(poke=poke)


def test_the_model_is_left_as_it_was(model: Transducer, fbank: Fbank) -> None:
    model.train()
    analyse(model, fbank, DecodingConfig(), CHUNKED, QUICK)
    assert model.training
    assert all(weight.dtype is torch.float32 and weight.requires_grad for weight in model.parameters())
    system = features_system(model.eval(), 10, CHUNKED)
    assert system.expected.shape == (3, 10)
