import pytest
import torch

from chunkwise.nn.blocks import BLOCK_FRAMES, cut_into_blocks
from chunkwise.nn.masks import chunk_visibility, valid_frames


def seen(frames: int, lengths: list[int], chunk: int | None, left: int | None) -> torch.Tensor:
    """Which frames each frame sees through the blocks: one-hot keys, averaged, then asked for what is not zero."""
    blocks = cut_into_blocks(valid_frames(torch.tensor(lengths), frames), chunk, left)
    batch = len(lengths)
    ones = torch.eye(frames)[None, :, None].expand(batch, -1, -1, -1)
    keys = blocks.windows(ones)[:, :, 0]
    query = torch.arange(batch * blocks.count * blocks.size).view(-1, blocks.size, 1)
    visible = blocks.visible.expand(-1, 1, blocks.size, -1)[:, 0].float()
    assert query.shape[0] == visible.shape[0] == batch * blocks.count
    return blocks.join(visible @ keys) > 0


@pytest.mark.parametrize("chunk", [1, 3, 7, 16, 40])
@pytest.mark.parametrize("left", [None, 0, 1, 4])
@pytest.mark.parametrize("frames", [1, 63, 64, 65, 129, 200])
def test_blocks_see_exactly_what_the_rule_allows(chunk: int, left: int | None, frames: int) -> None:
    lengths = [frames, (frames + 1) // 2]
    rule = chunk_visibility(frames, chunk, left)
    itself = torch.eye(frames, dtype=torch.bool)
    found = seen(frames, lengths, chunk, left)
    for row, length in enumerate(lengths):
        expected = (rule & (torch.arange(frames) < length)) | itself
        assert torch.equal(found[row], expected)


def test_a_limited_left_context_costs_linear_time() -> None:
    """The scores to compute double with the utterance, instead of growing fourfold."""
    scores = []
    for frames in (1600, 3200):
        blocks = cut_into_blocks(torch.ones(1, frames, dtype=torch.bool), 16, 4)
        assert (blocks.size, blocks.left) == (BLOCK_FRAMES, 64)
        scores.append(blocks.visible.numel())
    assert scores[1] == 2 * scores[0]


def test_no_row_is_empty_and_full_context_needs_no_square_mask() -> None:
    blocks = cut_into_blocks(valid_frames(torch.tensor([0, 3]), 5), None, None)
    assert blocks.visible.dtype == torch.bool
    assert blocks.visible.shape == (2, 1, 1, 5)
    assert blocks.visible.any(dim=-1).all()
    blocks = cut_into_blocks(valid_frames(torch.tensor([0, 3, 6]), 6), 2, 0)
    assert blocks.visible.any(dim=-1).all()
    assert blocks.visible[1, 0].int().tolist()[3] == [0, 0, 1, 1, 0, 0]
