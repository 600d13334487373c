from typing import Any

import pytest
import torch

from chunkwise.models.predictor import PredictorConfig, PredictorKind, build_predictor
from chunkwise.typing import BLANK


@pytest.mark.parametrize("kind", list(PredictorKind))
@pytest.mark.parametrize("context_size", [1, 2, 3])
def test_one_token_at_a_time_equals_the_whole(kind: PredictorKind, context_size: int) -> None:
    torch.manual_seed(0)
    config = PredictorConfig(kind=kind, dim=8, context_size=context_size, num_layers=2)
    predictor: Any = build_predictor(config, vocab_size=5).double().eval()
    tokens = torch.tensor([[1, 2, 4, 3], [4, 4, 1, 2]])
    whole = predictor(tokens)
    assert whole.shape == (2, 5, 8)
    state = predictor.initial_state(2)
    for position, token in enumerate([torch.full((2,), BLANK), *tokens.T]):
        step, state = predictor.stream(token, state)
        torch.testing.assert_close(step, whole[:, position], atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", list(PredictorKind))
def test_select_takes_rows(kind: PredictorKind) -> None:
    predictor: Any = build_predictor(PredictorConfig(kind=kind, dim=8), vocab_size=5).eval()
    start = predictor.initial_state(2)
    _, moved = predictor.stream(torch.tensor([1, 2]), start)
    mixed = predictor.select(torch.tensor([True, False]), moved, start)
    after, expected = (predictor.stream(torch.tensor([3, 3]), state)[0] for state in (mixed, moved))
    torch.testing.assert_close(after[0], expected[0])
    fresh, _ = predictor.stream(torch.tensor([3, 3]), start)
    torch.testing.assert_close(after[1], fresh[1])
