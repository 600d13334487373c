from copy import deepcopy
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from chunkwise.audio.fbank import Fbank, FbankConfig
from chunkwise.audio.reading import read_audio
from chunkwise.audio.resampling import resample
from chunkwise.decoding.greedy import GreedySearch
from chunkwise.decoding.search import decode
from chunkwise.models.conformer import EncoderConfig
from chunkwise.models.context import FULL, ChunkContext
from chunkwise.models.joiner import JoinerConfig
from chunkwise.models.normalisation import FeatureNormalisation, NormalisationConfig
from chunkwise.models.predictor import PredictorConfig
from chunkwise.models.transducer import Transducer, TransducerConfig
from chunkwise.streaming.latency import lookahead_ms, lookahead_samples
from chunkwise.streaming.session import Session, advance
from chunkwise.text.tokenizer import Tokenizer, TokenizerConfig, TokenizerKind, train_tokenizer

RATE_HZ = 16_000
CONTEXTS = [ChunkContext(1, 0), ChunkContext(4, 2), ChunkContext(16, None), FULL]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "char.model"
    return train_tokenizer(["one two three four"], TokenizerConfig(kind=TokenizerKind.char, vocab_size=None), path)


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> Transducer:
    """Random weights that emit plenty of tokens, which depend on what is heard."""
    torch.manual_seed(3)
    encoder = EncoderConfig(
        d_model=16, num_layers=2, num_heads=2, feed_forward_dim=32, kernel_size=7, subsampling_channels=8
    )
    shape = TransducerConfig(
        encoder=encoder, predictor=PredictorConfig(dim=16), joiner=JoinerConfig(dim=16), num_mels=80,
        vocab_size=tokenizer.vocab_size,
    )  # fmt: skip
    model = Transducer(shape).eval()
    model.normalisation.set_statistics(torch.full((80,), -8.0), torch.full((80,), 4.0))
    with torch.no_grad():
        model.joiner.output.weight.mul_(8.0)
        heard = speech(2.0)
        features, lengths = Fbank(FbankConfig()).eval()(heard[None], torch.tensor([len(heard)]))
        encoded, _ = model.encode(features, lengths, FULL)
        start = model.joiner.project_predictor(model.predictor(torch.zeros(1, 0, dtype=torch.long))[0])
        logits = model.joiner(model.joiner.project_encoder(encoded[0]), start)
        model.joiner.output.bias -= logits.mean(dim=0)  # else one unit would win everywhere
    return model


def session(model: Transducer, tokenizer: Tokenizer, context: ChunkContext, rate_hz: int = RATE_HZ) -> Session:
    return Session(model, Fbank(FbankConfig()), tokenizer, GreedySearch(model, 2), context, rate_hz)


def speech(seconds: float, seed: int = 0, rate_hz: int = RATE_HZ) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    samples = torch.randn(int(seconds * rate_hz), generator=generator)
    envelope = torch.linspace(0, 12, len(samples)).sin().abs()
    return 0.1 * samples * envelope


def masked(model: Transducer, tokenizer: Tokenizer, context: ChunkContext, waveform: torch.Tensor) -> str:
    with torch.inference_mode():
        features, lengths = Fbank(FbankConfig()).eval()(waveform[None], torch.tensor([len(waveform)]))
        encoded, encoded_lengths = model.encode(features, lengths, context)
        return tokenizer.decode(decode(GreedySearch(model, 2), encoded, encoded_lengths)[0].tokens)


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda c: c.label)
@pytest.mark.parametrize("piece", [37, 1600, 100_000])
def test_a_stream_says_what_the_masked_evaluation_says(
    model: Transducer, tokenizer: Tokenizer, context: ChunkContext, piece: int
) -> None:
    waveform = speech(1.37)
    stream = session(model, tokenizer, context)
    partials = [stream.accept(part) for part in waveform.split(piece)]
    final = stream.finish()
    assert final.final
    assert final.text == masked(model, tokenizer, context, waveform)
    assert len(set(final.text)) > 2
    for earlier, later in pairwise([*partials, final]):
        assert later.text.startswith(earlier.text)
    assert len(final.frames) == len(final.tokens)


def running(model: Transducer) -> Transducer:
    """The same weights, with a running mean of the features."""
    model, normalisation = deepcopy(model), FeatureNormalisation(80, NormalisationConfig(prior_frames=20))
    normalisation.set_statistics(model.normalisation.mean, model.normalisation.std)
    model.normalisation = normalisation
    return model.eval()


@pytest.mark.parametrize("piece", [37, 5000])
def test_a_running_mean_of_the_features_is_streamed_too(model: Transducer, tokenizer: Tokenizer, piece: int) -> None:
    context, other = ChunkContext(4, 2), running(model)
    search = GreedySearch(other, 2)
    streams = [Session(other, Fbank(FbankConfig()), tokenizer, search, context, RATE_HZ) for _ in range(2)]
    waveforms = [speech(0.8, seed=1) + 0.3, speech(1.6, seed=2)]
    for stream, waveform in zip(streams, waveforms, strict=True):
        for part in waveform.split(piece):
            stream.receive(part)
        stream.end()
    while advance(streams):
        pass
    for stream, waveform in zip(streams, waveforms, strict=True):
        assert stream.result().text == masked(other, tokenizer, context, waveform)
        assert stream.result().text != masked(model, tokenizer, context, waveform)


@pytest.mark.parametrize("rate_hz", [8_000, 44_100])
def test_other_sample_rates_are_resampled_without_seams(model: Transducer, tokenizer: Tokenizer, rate_hz: int) -> None:
    waveform = speech(1.0, rate_hz=rate_hz)
    stream = session(model, tokenizer, ChunkContext(4, 2), rate_hz)
    for packet in waveform.split(rate_hz // 10):
        stream.accept(packet)
    whole = resample(waveform, rate_hz, RATE_HZ)
    assert stream.finish().text == masked(model, tokenizer, ChunkContext(4, 2), whole)


def test_a_reset_session_is_a_fresh_one(model: Transducer, tokenizer: Tokenizer) -> None:
    context = ChunkContext(4, 2)
    fresh = []
    for seed in (1, 2):
        stream = session(model, tokenizer, context)
        stream.accept(speech(0.9, seed))
        fresh.append(stream.finish().text)
    stream = session(model, tokenizer, context)
    for seed, expected in ((1, fresh[0]), (2, fresh[1]), (1, fresh[0])):
        stream.accept(speech(0.9, seed))
        assert stream.finish().text == expected
        stream.reset()
    assert stream.finish().text == ""


def test_sessions_on_one_model_do_not_disturb_each_other(model: Transducer, tokenizer: Tokenizer) -> None:
    context = ChunkContext(4, 1)
    streams = [session(model, tokenizer, context) for _ in range(2)]
    waveforms = [speech(0.8, 5), speech(0.8, 6)]
    for packets in zip(*(waveform.split(1000) for waveform in waveforms), strict=True):
        for stream, packet in zip(streams, packets, strict=True):
            stream.accept(packet)
    for stream, waveform in zip(streams, waveforms, strict=True):
        assert stream.finish().text == masked(model, tokenizer, context, waveform)


@pytest.mark.parametrize("samples", [0, 1, 79, 100, 399, 400])
def test_a_stream_too_short_for_a_chunk_ends_well(model: Transducer, tokenizer: Tokenizer, samples: int) -> None:
    stream = session(model, tokenizer, ChunkContext(16, 2))
    stream.accept(torch.zeros(samples))
    assert stream.finish() == stream.finish()


def test_bad_samples_and_late_ones_are_refused(model: Transducer, tokenizer: Tokenizer) -> None:
    stream = session(model, tokenizer, FULL)
    with pytest.raises(ValueError, match="not finite"):
        stream.accept(torch.tensor([0.0, float("nan")]))
    stream.finish()
    with pytest.raises(ValueError, match=r"reset\(\)"):
        stream.accept(torch.zeros(10))


@pytest.mark.parametrize("chunk_frames", [1, 4, 16])
def test_the_declared_lookahead_is_the_measured_one(model: Transducer, chunk_frames: int) -> None:
    """The first chunk's output changes with the last declared sample and with none after it."""
    context, fbank, precise = (
        ChunkContext(chunk_frames, None),
        Fbank(FbankConfig()).double().eval(),
        deepcopy(model).double(),
    )
    declared = lookahead_samples(fbank, context)
    assert declared is not None
    waveform = speech(1.5).double()

    def first_chunk(poked: int) -> torch.Tensor:
        moved = waveform.clone()
        moved[poked] += 0.5
        with torch.inference_mode():
            features, lengths = fbank(moved[None], torch.tensor([len(moved)]))
            return precise.encode(features, lengths, context)[0][0, :chunk_frames]

    untouched = first_chunk(len(waveform) - 1)
    assert not torch.equal(first_chunk(declared - 1), untouched)
    assert torch.equal(first_chunk(declared), untouched)
    assert lookahead_ms(fbank, context) == pytest.approx(40 * chunk_frames + 7.5)


def test_full_context_has_no_bound(tokenizer: Tokenizer) -> None:
    assert lookahead_samples(Fbank(FbankConfig()), FULL) is None


def test_real_recordings_stream_as_they_evaluate(model: Transducer, tokenizer: Tokenizer, shared_data: Path) -> None:
    for path in sorted((shared_data / "waves_yesno").glob("*.wav"))[:2]:
        waveform, rate_hz = read_audio(path)
        stream = session(model, tokenizer, ChunkContext(8, 2), rate_hz)
        for packet in waveform.split(777):
            stream.accept(packet)
        expected = masked(model, tokenizer, ChunkContext(8, 2), resample(waveform, rate_hz, RATE_HZ))
        assert stream.finish().text == expected


@pytest.mark.parametrize("context", [ChunkContext(4, 2), ChunkContext(1, 0), ChunkContext(8, None), FULL], ids=str)
def test_sessions_of_any_age_advance_in_one_batch(
    model: Transducer, tokenizer: Tokenizer, context: ChunkContext
) -> None:
    """Late comers, early leavers and different sample rates: each says what it would say alone."""
    rates = [16_000, 8_000, 16_000, 44_100, 16_000]
    waveforms = [
        speech(s, seed, rate) for seed, (s, rate) in enumerate(zip((1.3, 0.7, 0.2, 1.0, 0.01), rates, strict=True))
    ]
    search = GreedySearch(model, 2)
    fbank = Fbank(FbankConfig())
    together = [Session(model, fbank, tokenizer, search, context, rate) for rate in rates]
    for turn in range(12):
        for number, (stream, waveform, rate) in enumerate(zip(together, waveforms, rates, strict=True)):
            piece = waveform.split(rate // 7)[turn - number : turn - number + 1] if turn >= number else ()
            if piece and not stream.ended:
                stream.receive(piece[0])
            elif turn > number:
                stream.end()
        while advance(together):
            pass
    for stream, waveform, rate in zip(together, waveforms, rates, strict=True):
        alone = session(model, tokenizer, context, rate)
        alone.accept(waveform)
        assert stream.finish() == alone.finish()


def test_sessions_of_different_contexts_cannot_share_a_batch(model: Transducer, tokenizer: Tokenizer) -> None:
    sessions = [session(model, tokenizer, ChunkContext(4, left)) for left in (1, 2)]
    for stream in sessions:
        stream.receive(speech(1.0))
    with pytest.raises(ValueError, match="must share one model, search and context"):
        advance(sessions)


def test_what_a_session_holds_is_bounded(model: Transducer, tokenizer: Tokenizer) -> None:
    """The bytes after two seconds are those after twenty, tokens aside."""

    def held(value: Any) -> int:
        if isinstance(value, torch.Tensor):
            return value.untyped_storage().nbytes()
        if is_dataclass(value):
            return sum(held(getattr(value, field.name)) for field in fields(value) if "tokens" not in field.name)
        return sum(map(held, value)) if isinstance(value, tuple) else 0

    stream, sizes = session(model, tokenizer, ChunkContext(4, 2)), []
    for second in range(20):
        stream.accept(speech(0.96, second))
        sizes.append(held(stream.state))
    assert set(sizes[2:]) == {sizes[2]}
