import math

import pytest
import torch

from chunkwise.nn.attention import (
    AttentionState,
    ChunkView,
    RelativeAttention,
    RotaryAttention,
    SelfAttention,
    rotate,
    sinusoids,
)
from chunkwise.nn.blocks import cut_into_blocks


def test_relative_distance_scores_equal_an_explicit_loop() -> None:
    torch.manual_seed(0)
    attention = RelativeAttention(8, 2, 0.0).double()
    torch.nn.init.normal_(attention.distance_bias)
    queries = torch.randn(1, 2, 3, 4, dtype=torch.float64)
    keys = 5  # the last query stands at key 4
    scores = attention.distance_scores(queries, attention.embed_positions(torch.arange(2, 5), 3, keys))
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
    attention = RotaryAttention(64, 1, 0.0)
    query, key = torch.randn(2, 1, 1, 1, 64)

    def at(position: int) -> torch.Tensor:
        return attention.embed_positions(torch.tensor([position]), 1, 1)

    near = (rotate(query, at(7)) * rotate(key, at(3))).sum()
    far = (rotate(query, at(1_000_007)) * rotate(key, at(1_000_003))).sum()
    torch.testing.assert_close(near, far, atol=1e-4, rtol=1e-4)


def view(attention: SelfAttention, first: int, chunk: int, stored: int, left: int | None, known: int) -> ChunkView:
    """What a chunk of one stream sees that has `known` frames of its past in storage for `stored`."""
    positions = attention.embed_positions(torch.arange(first, first + chunk)[None], chunk, stored + chunk)
    cached = torch.arange(stored)[None] >= stored - known
    visible = torch.cat((cached, torch.ones(1, chunk, dtype=torch.bool)), dim=1)[:, None, None]
    return ChunkView(positions, left, visible, cached[:, :, None, None])


def run(attention: SelfAttention, chunks: torch.Tensor, first: int, fill: float = 0.0) -> torch.Tensor:
    state = attention.initial_state(1, 8)
    state = AttentionState(torch.full_like(state.keys, fill), torch.full_like(state.values, fill))
    outputs = []
    for number, chunk in enumerate(chunks):
        known = min(8, 4 * number)
        output, state = attention.stream(chunk, state, view(attention, first + 4 * number, 4, 8, 8, known))
        outputs.append(output)
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize("kind", [RotaryAttention, RelativeAttention])
def test_an_offset_of_absolute_time_changes_nothing(kind: type) -> None:
    torch.manual_seed(0)
    attention = kind(8, 2, 0.0).double().eval()
    chunks = torch.randn(3, 1, 4, 8, dtype=torch.float64)
    torch.testing.assert_close(run(attention, chunks, 0), run(attention, chunks, 12_345), atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", [RotaryAttention, RelativeAttention])
def test_what_storage_holds_before_the_first_chunk_is_never_seen(kind: type) -> None:
    """wenet-e2e/wenet#1516: an unused cache of zeros, of large numbers and of NaN gives one result, the masked one."""
    torch.manual_seed(0)
    attention = kind(8, 2, 0.0).double().eval()
    chunks = torch.randn(3, 1, 4, 8, dtype=torch.float64)
    whole = chunks.transpose(0, 1).flatten(1, 2)
    blocks = cut_into_blocks(torch.ones(1, 12, dtype=torch.bool), 4, 2)
    positions = attention.embed_positions(torch.arange(12), blocks.size, blocks.window)
    expected = attention(whole, blocks, positions)
    zeros = run(attention, chunks, 0)
    torch.testing.assert_close(zeros, expected, atol=1e-12, rtol=0)
    for fill in (1e4, math.nan):
        assert torch.equal(run(attention, chunks, 0, fill), zeros)


@pytest.mark.parametrize("kind", [RotaryAttention, RelativeAttention])
def test_distances_are_right_when_only_they_count(kind: type) -> None:
    """hirofumi0810/neural_sp#250: the positional term alone, streamed with a cache and masked as a whole."""
    torch.manual_seed(0)
    attention = kind(8, 2, 0.0).double().eval()
    with torch.no_grad():
        attention.project_in.weight[:16].zero_()  # queries and keys are their biases: content cannot matter
        if kind is RelativeAttention:
            torch.nn.init.normal_(attention.distance_bias)
    chunks = torch.randn(5, 1, 4, 8, dtype=torch.float64)
    blocks = cut_into_blocks(torch.ones(1, 20, dtype=torch.bool), 4, 2)
    positions = attention.embed_positions(torch.arange(20), blocks.size, blocks.window)
    masked = attention(chunks.transpose(0, 1).flatten(1, 2), blocks, positions)
    torch.testing.assert_close(run(attention, chunks, 0), masked, atol=1e-9, rtol=0)
