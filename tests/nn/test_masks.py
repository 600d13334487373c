import pytest
import torch

from chunkwise.nn.attention import RelativeAttention, RotaryAttention
from chunkwise.nn.blocks import cut_into_blocks
from chunkwise.nn.masks import chunk_visibility, valid_frames


def by_loop(frames: int, chunk: int, left: int | None) -> list[list[bool]]:
    rows = []
    for query in range(frames):
        start = 0 if left is None else max(0, (query // chunk - left) * chunk)
        rows.append([start <= key < (query // chunk + 1) * chunk for key in range(frames)])
    return rows


@pytest.mark.parametrize("left", [None, 0, 1, 2])
def test_visibility_equals_the_rule_written_as_a_loop(left: int | None) -> None:
    for frames in range(1, 12):
        for chunk in range(1, 6):
            assert chunk_visibility(frames, chunk, left).tolist() == by_loop(frames, chunk, left)


@pytest.mark.parametrize("kind", [RotaryAttention, RelativeAttention])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_scores_far_below_zero_stay_finite(kind: type, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    attention = kind(8, 2, 0.0).to(dtype).eval()
    with torch.no_grad():
        attention.project_in.weight.mul_(8.0)
    blocks = cut_into_blocks(valid_frames(torch.tensor([1, 6]), 6), 2, 0)
    positions = attention.embed_positions(torch.arange(6), blocks.size, blocks.window)
    output = attention(torch.randn(2, 6, 8, dtype=dtype) * 4, blocks, positions)
    assert torch.isfinite(output).all()


@pytest.mark.parametrize("kind", [RotaryAttention, RelativeAttention])
@pytest.mark.parametrize("chunk", [None, 2])
def test_a_row_with_nothing_to_see_has_finite_gradients(kind: type, chunk: int | None) -> None:
    attention = kind(8, 2, 0.0)
    x = torch.randn(1, 4, 8, requires_grad=True)
    blocks = cut_into_blocks(valid_frames(torch.tensor([0]), 4), chunk, None if chunk is None else 0)
    attention(x, blocks, attention.embed_positions(torch.arange(4), blocks.size, blocks.window)).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
