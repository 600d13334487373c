from typing import Any

import pytest
import torch

from chunkwise.models.predictor import PredictorConfig, PredictorKind, build_predictor
from chunkwise.nn.states import put_rows, take_rows
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
def test_rows_can_be_stepped_alone(kind: PredictorKind) -> None:
    predictor: Any = build_predictor(PredictorConfig(kind=kind, dim=8, num_layers=2), vocab_size=5).eval()
    _, start = predictor.stream(torch.tensor([4, 3, 2]), predictor.initial_state(3))
    tokens = torch.tensor([1, 2, 3])
    _, moved = predictor.stream(tokens, start)
    rows = torch.tensor([2, 0])
    _, stepped = predictor.stream(tokens[rows], take_rows(start, rows))
    after, expected, unmoved = (
        predictor.stream(torch.tensor([3, 3, 3]), state)[0] for state in (put_rows(start, rows, stepped), moved, start)
    )
    torch.testing.assert_close(after[[0, 2]], expected[[0, 2]])
    torch.testing.assert_close(after[1], unmoved[1])
    assert not torch.allclose(expected[1], unmoved[1])
