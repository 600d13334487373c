"""Greedy search against a loop over frames, for every batch and every way of cutting the frames."""

import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from chunkwise.decoding import greedy
from chunkwise.decoding.greedy import GreedySearch
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.decoding.search import decode
from chunkwise.models.predictor import PredictorKind
from chunkwise.models.transducer import Transducer

Build = Callable[..., Transducer]


@torch.no_grad()
def one_frame_after_the_other(model: Transducer, encoded: Tensor, max_symbols_per_frame: int) -> Hypothesis:
    """The textbook loop over the frames of one utterance; predictions from the whole prefix each time."""
    tokens: list[int] = []
    frames: list[int] = []
    score = 0.0
    for frame, vector in enumerate(encoded):
        for emitted in range(max_symbols_per_frame + 1):
            prediction = model.predictor(torch.tensor([tokens], dtype=torch.int64))[0, -1]
            projections = model.joiner.project_encoder(vector), model.joiner.project_predictor(prediction)
            scores = model.joiner(*projections).log_softmax(dim=-1)
            token = 0 if emitted == max_symbols_per_frame else int(scores.argmax())
            score += scores[token].item()
            if token == 0:
                break
            tokens.append(token)
            frames.append(frame)
    return Hypothesis(tokens, frames, score)


def assert_same(found: list[Hypothesis], wanted: list[Hypothesis]) -> None:
    """Equal tokens and frames, and nearly equal scores."""
    assert [h.tokens for h in found] == [h.tokens for h in wanted]
    assert [h.frames for h in found] == [h.frames for h in wanted]
    assert [h.score for h in found] == pytest.approx([h.score for h in wanted], rel=1e-4, abs=1e-3)


def encoder_frames(batch: int = 3, num_frames: int = 40) -> Tensor:
    """Random encoder frames."""
    return torch.randn(batch, num_frames, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", PredictorKind)
@pytest.mark.parametrize("max_symbols_per_frame", [1, 2, 5])
@pytest.mark.parametrize("lookahead", [1, 3, 8, 100])
def test_equals_a_loop_over_frames(
    kind: PredictorKind,
    max_symbols_per_frame: int,
    lookahead: int,
    small_model: Build,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(greedy, "LOOKAHEAD_FRAMES", lookahead)
    model, encoded = small_model(kind), encoder_frames()
    wanted = [one_frame_after_the_other(model, row, max_symbols_per_frame) for row in encoded]
    assert sum(len(hypothesis.tokens) for hypothesis in wanted) > 30
    assert len({token for hypothesis in wanted for token in hypothesis.tokens}) > 2
    found = decode(GreedySearch(model, max_symbols_per_frame), encoded, torch.full((3,), 40))
    assert_same(found, wanted)


@pytest.mark.parametrize("kind", PredictorKind)
@pytest.mark.parametrize("blank_bias", [1.0, -100.0])
def test_padding_and_batch_mates_are_invisible(kind: PredictorKind, blank_bias: float, small_model: Build) -> None:
    """Regression: k2-fsa/icefall#358, NVIDIA-NeMo/Speech#16097, speechbrain/speechbrain#2986."""
    search, lengths = GreedySearch(small_model(kind, blank_bias=blank_bias), 1), [3, 10, 40, 0]
    encoded = encoder_frames(4)
    for row, length in enumerate(lengths):
        encoded[row, length:] = float("nan")
    together = decode(search, encoded, torch.tensor(lengths))
    alone = [
        decode(search, encoded[row : row + 1, :length], torch.tensor([length]))[0] for row, length in enumerate(lengths)
    ]
    assert_same(together, alone)
    assert_same(decode(search, encoded.flip(0), torch.tensor(lengths).flip(0)), alone[::-1])
    if blank_bias < 0:
        assert [len(hypothesis.tokens) for hypothesis in together] == lengths
        assert [hypothesis.frames for hypothesis in together] == [list(range(length)) for length in lengths]


@pytest.mark.parametrize("kind", PredictorKind)
@pytest.mark.parametrize("pieces", [[1] * 40, [40], [7, 0, 16, 17], [39, 1], [2, 38]])
def test_pieces_change_nothing(kind: PredictorKind, pieces: list[int], small_model: Build) -> None:
    search, encoded = GreedySearch(small_model(kind), 3), encoder_frames()
    state = search.initial_state(3)
    for piece in encoded.split(pieces, dim=1):
        state = search.stream(piece, torch.full((3,), piece.shape[1]), state)
    assert_same(search.hypotheses(state), decode(search, encoded, torch.full((3,), 40)))
    assert state.frames.tolist() == [40, 40, 40]


def test_rows_advance_at_their_own_pace(small_model: Build) -> None:
    """Sessions of one batch get pieces of different lengths, some of them empty."""
    search, encoded = GreedySearch(small_model(PredictorKind.lstm), 3), encoder_frames()
    taken, state = [0, 0, 0], search.initial_state(3)
    for lengths in ([5, 0, 9], [0, 11, 1], [20, 29, 0], [15, 0, 30]):
        piece = torch.full((3, max(lengths), 8), float("nan"))
        for row, length in enumerate(lengths):
            piece[row, :length] = encoded[row, taken[row] : taken[row] + length]
            taken[row] += length
        state = search.stream(piece, torch.tensor(lengths), state)
    assert taken == [40, 40, 40]
    assert_same(search.hypotheses(state), decode(search, encoded, torch.full((3,), 40)))


def test_states_are_values(small_model: Build) -> None:
    """Two continuations of one state do not disturb each other."""
    search, encoded = GreedySearch(small_model(), 3), encoder_frames()
    lengths = torch.full((3,), 20)
    half = search.stream(encoded[:, :20], lengths, search.initial_state(3))
    before = search.hypotheses(half)
    first = search.hypotheses(search.stream(encoded[:, 20:], lengths, half))
    search.stream(encoded[:, :20], lengths, half)
    assert search.hypotheses(half) == before
    assert search.hypotheses(search.stream(encoded[:, 20:], lengths, half)) == first


@pytest.mark.parametrize("kind", PredictorKind)
def test_rows_can_be_split_and_joined(kind: PredictorKind, small_model: Build) -> None:
    """Streams of different age in one batch go on as they would alone."""
    search, encoded = GreedySearch(small_model(kind), 3), encoder_frames()
    lengths = torch.full((3,), 20)
    first, _, third = search.split(search.stream(encoded[:, :20], lengths, search.initial_state(3)))
    joined = search.join([third, search.initial_state(1), first])
    found = search.hypotheses(search.stream(encoded[[2, 1, 0], 20:], lengths, joined))
    whole = decode(search, encoded, lengths * 2)
    fresh = decode(search, encoded[:, 20:], lengths)
    assert_same(found, [whole[2], fresh[1], whole[0]])


def test_ends_when_blank_never_wins(constant_model: Build) -> None:
    """Regression: speechbrain/speechbrain#1969."""
    probabilities = [0.01, 0.12, 0.12, 0.3, 0.12, 0.12, 0.12, 0.09]
    search = GreedySearch(constant_model(probabilities), 5)
    started = time.perf_counter()
    (hypothesis,) = decode(search, torch.randn(1, 7, 8), torch.tensor([7]))
    assert time.perf_counter() - started < 1.0
    assert hypothesis.tokens == [3] * 35
    assert hypothesis.frames == [frame for frame in range(7) for _ in range(5)]
    per_frame = 5 * torch.tensor(0.3).log() + torch.tensor(0.01).log()
    assert hypothesis.score == pytest.approx(7 * per_frame.item(), rel=1e-5)
