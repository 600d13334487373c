import math

import pytest
import torch

from chunkwise.nn.attention import RelativeAttention, RotaryAttention, rotate, sinusoids


def test_relative_distance_scores_equal_an_explicit_loop() -> None:
    torch.manual_seed(0)
    attention = RelativeAttention(8, 2, 0.0).double()
    torch.nn.init.normal_(attention.distance_bias)
    queries = torch.randn(1, 2, 3, 4, dtype=torch.float64)
    keys = 5  # the last query stands at key 4
    scores = attention.distance_scores(queries, keys)
    for head in range(2):
        for query in range(3):
            for key in range(keys):
                distance = torch.tensor([(query + keys - 3) - key])
                table = torch.cat(sinusoids(distance, 8), dim=1)
                embedded = attention.project_distance(table).view(2, 4)[head]
                expected = (queries[0, head, query] + attention.distance_bias[head, 0]) @ embedded / math.sqrt(4)
                torch.testing.assert_close(scores[0, head, query, key], expected)


def test_rotary_products_know_only_the_distance_also_far_into_a_stream() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 1, 1, 64)
    near = (rotate(query, 7) * rotate(key, 3)).sum()
    far = (rotate(query, 1_000_007) * rotate(key, 1_000_003)).sum()
    torch.testing.assert_close(near, far, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", [RotaryAttention, RelativeAttention])
def test_an_offset_of_absolute_time_changes_nothing(kind: type) -> None:
    torch.manual_seed(0)
    attention = kind(8, 2, 0.0).double().eval()
    chunks = torch.randn(3, 1, 4, 8, dtype=torch.float64)

    def run(position: int) -> torch.Tensor:
        state = attention.initial_state(1)
        state = type(state)(state.keys, state.values, position)
        outputs = []
        for chunk in chunks:
            output, state = attention.stream(chunk, state, left_frames=8)
            outputs.append(output)
        return torch.cat(outputs)

    torch.testing.assert_close(run(0), run(12_345), atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", [RotaryAttention, RelativeAttention])
def test_the_cache_holds_the_left_context_and_no_more(kind: type) -> None:
    attention = kind(8, 2, 0.0).eval()
    state, held = attention.initial_state(1), []
    for _ in range(100):
        _, state = attention.stream(torch.randn(1, 8, 8), state, left_frames=16)
        held.append(state.keys.shape[2])
    assert held[:3] == [8, 16, 16]
    assert set(held[2:]) == {16}
