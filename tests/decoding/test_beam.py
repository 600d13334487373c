"""Beam search: sums over alignments, always ends, and independent of batch and pieces."""

import math
import time
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from chunkwise.decoding.beam import BeamSearch
from chunkwise.decoding.greedy import GreedySearch
from chunkwise.decoding.search import decode
from chunkwise.losses.transducer import full_transducer_loss
from chunkwise.models.predictor import PredictorKind
from chunkwise.models.transducer import Transducer

Build = Callable[..., Transducer]


def encoder_frames(batch: int = 3, num_frames: int = 12) -> Tensor:
    """Random encoder frames."""
    return torch.randn(batch, num_frames, 8, generator=torch.Generator().manual_seed(0))


def test_alignments_of_equal_tokens_are_added(constant_model: Build) -> None:
    """Regression: k2-fsa/icefall#272, #153."""
    search = BeamSearch(constant_model([0.4, 0.6]), beam_size=6, max_symbols_per_frame=4)
    state = search.stream(torch.zeros(1, 2, 8), torch.tensor([2]), search.initial_state(1))
    (best,) = search.hypotheses(state)
    assert best.tokens == [1]
    assert best.score == pytest.approx(math.log(0.192), abs=1e-4)
    scores = {len(hypothesis.tokens): math.exp(hypothesis.score) for hypothesis in search.n_best(state)[0]}
    assert {n: scores[n] for n in (0, 1, 2, 3)} == pytest.approx({0: 0.16, 1: 0.192, 2: 0.1728, 3: 0.13824}, abs=1e-5)


@pytest.mark.parametrize("kind", PredictorKind)
def test_a_wide_beam_finds_the_likeliest_tokens_and_their_likelihood(kind: PredictorKind, small_model: Build) -> None:
    """Exhaustive: the transducer loss of every token sequence of up to 3 tokens."""
    model, encoded = small_model(kind, vocab_size=3, blank_bias=3.0), encoder_frames(1, 3)
    likelihoods = {}
    for length in range(4):
        for tokens in product((1, 2), repeat=length):
            targets = torch.tensor([tokens], dtype=torch.int64)
            predictions = model.joiner.project_predictor(model.predictor(targets))
            logits = model.joiner(model.joiner.project_encoder(encoded)[:, :, None], predictions[:, None])
            likelihoods[tokens] = -full_transducer_loss(
                logits, targets, torch.tensor([3]), torch.tensor([length])
            ).item()
    search = BeamSearch(model, beam_size=200, max_symbols_per_frame=3)
    (found,) = search.n_best(search.stream(encoded, torch.tensor([3]), search.initial_state(1)))
    found = {tuple(hypothesis.tokens): hypothesis.score for hypothesis in found}
    assert {tokens: found[tokens] for tokens in likelihoods} == pytest.approx(likelihoods, abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_ends_when_blank_never_wins(beam_size: int, constant_model: Build) -> None:
    """Regression: NVIDIA-NeMo/Speech#3686."""
    model = constant_model([0.01, 0.12, 0.12, 0.3, 0.12, 0.12, 0.12, 0.09])
    search = BeamSearch(model, beam_size, max_symbols_per_frame=5)
    started = time.perf_counter()
    state = search.stream(torch.randn(1, 7, 8), torch.tensor([7]), search.initial_state(1))
    assert time.perf_counter() - started < 1.0
    assert state.frames == [7]
    assert 1 <= len(search.n_best(state)[0]) <= beam_size
    for hypothesis in search.n_best(state)[0]:
        blanks = 7  # one per frame, also of a frame with five tokens
        assert len(hypothesis.tokens) == len(hypothesis.frames) <= 35
        assert hypothesis.score <= blanks * math.log(0.01) + 1e-3 + math.log(math.comb(41, 6)) + 35 * math.log(1.2)


@pytest.mark.parametrize("kind", PredictorKind)
def test_at_least_as_likely_as_greedy(kind: PredictorKind, small_model: Build) -> None:
    model, encoded, lengths = small_model(kind, blank_bias=3.0), encoder_frames(), torch.tensor([12, 7, 0])
    beam = decode(BeamSearch(model, 8, 3), encoded, lengths)
    greedy = decode(GreedySearch(model, 3), encoded, lengths)
    assert all(wide.score >= narrow.score - 1e-4 for wide, narrow in zip(beam, greedy, strict=True))
    assert beam[2].tokens == []
    for hypothesis in beam:
        assert hypothesis.frames == sorted(hypothesis.frames)
        assert len(hypothesis.frames) == len(hypothesis.tokens)


@pytest.mark.parametrize("kind", PredictorKind)
@pytest.mark.parametrize("pieces", [[1] * 12, [5, 0, 7]])
def test_batch_and_pieces_change_nothing(kind: PredictorKind, pieces: list[int], small_model: Build) -> None:
    search, encoded = BeamSearch(small_model(kind), 3, 3), encoder_frames()
    state = search.initial_state(3)
    for piece in encoded.split(pieces, dim=1):
        state = search.stream(piece, torch.full((3,), piece.shape[1]), state)
    for row, found in enumerate(search.hypotheses(state)):
        (alone,) = decode(search, encoded[row : row + 1], torch.tensor([12]))
        assert (found.tokens, found.frames) == (alone.tokens, alone.frames)
        assert found.score == pytest.approx(alone.score, abs=1e-3)


def test_rows_can_be_split_and_joined(small_model: Build) -> None:
    search, encoded, lengths = BeamSearch(small_model(), 3, 3), encoder_frames(2), torch.tensor([6, 6])
    kept, left = search.split(search.stream(encoded[:, :6], lengths, search.initial_state(2)))
    joined = search.join([search.initial_state(1), kept])
    fresh, going_on = search.hypotheses(search.stream(encoded[:, 6:].flip(0), lengths, joined))
    assert going_on.tokens == decode(search, encoded[:1], torch.tensor([12]))[0].tokens
    assert fresh.tokens == decode(search, encoded[1:, 6:], torch.tensor([6]))[0].tokens
    assert max(fresh.frames) < 6
    assert search.hypotheses(left)[0].tokens == decode(search, encoded[1:, :6], torch.tensor([6]))[0].tokens
