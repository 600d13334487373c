"""A path's arcs add up to the search's own score, and token systems stand on the right frames."""

from dataclasses import replace

import pytest
import torch

from chunkwise.analysis.systems import features_system
from chunkwise.analysis.tokens import Path, arc_scores, decision_system, token_systems
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.decoding.search import DecodingConfig, build_search, decode
from chunkwise.models.context import ChunkContext
from chunkwise.models.predictor import PredictorKind, build_predictor
from chunkwise.models.transducer import Transducer

CONTEXT = ChunkContext(4, 1)


def decoded(model: Transducer, features: torch.Tensor) -> tuple[torch.Tensor, Hypothesis]:
    lengths = torch.tensor([features.shape[1]])
    with torch.no_grad():
        encoded, encoded_lengths = model.encode(features, lengths, CONTEXT)
    return encoded, decode(build_search(DecodingConfig(max_symbols_per_frame=2), model), encoded, encoded_lengths)[0]


@pytest.mark.parametrize("kind", list(PredictorKind))
def test_the_arcs_of_a_greedy_path_add_up_to_its_score(model: Transducer, kind: PredictorKind) -> None:
    model.predictor = build_predictor(replace(model.config.predictor, kind=kind), model.config.vocab_size).eval()
    encoded, hypothesis = decoded(model, 4 * torch.randn(1, 90, 40) - 3)
    assert len(hypothesis.tokens) > 2
    path = Path.of(hypothesis, encoded.shape[1])
    scores = arc_scores(model, encoded, path, hypothesis.tokens)
    assert float(scores.detach().sum()) == pytest.approx(hypothesis.score, rel=1e-5)
    assert path.labels[path.emissions].tolist() == hypothesis.tokens
    assert path.frames[path.emissions].tolist() == hypothesis.frames


def test_a_token_may_depend_on_its_frame_and_its_path_on_all_before_it(model: Transducer) -> None:
    features = 4 * torch.randn(1, 90, 40) - 3
    _, hypothesis = decoded(model, features)
    below = features_system(model, 90, CONTEXT)
    emission, path = token_systems(model, below, hypothesis)
    for row, frame in enumerate(hypothesis.frames):
        assert torch.equal(emission.expected[row], below.expected[frame])
        assert torch.equal(path.expected[row], below.expected[: frame + 1].any(dim=0))
    assert emission.function(features).shape == (1, len(hypothesis.tokens), 1)


def test_a_changed_decision_counts_for_its_token_and_all_later_ones(model: Transducer) -> None:
    features = 4 * torch.randn(1, 90, 40) - 3
    _, hypothesis = decoded(model, features)
    below = features_system(model, 90, CONTEXT)
    search = build_search(DecodingConfig(max_symbols_per_frame=2), model)
    system = decision_system(below, hypothesis, search)
    assert not system.function(features).any()
    tokens = list(hypothesis.tokens)
    tokens[1] += 1
    other = decision_system(below, Hypothesis(tokens, hypothesis.frames, 0.0), search)
    assert other.function(features)[0, :, 0].tolist() == [0.0] + [1.0] * (len(tokens) - 1)
    more = Hypothesis([*hypothesis.tokens, 1], [*hypothesis.frames, 22], 0.0)
    assert decision_system(below, more, search).function(features)[0, :, 0].tolist() == [0.0] * len(tokens) + [1.0]
