"""Under autocast the encoder gives what it gives in fp32, within the format's rounding, also where fp16 is short."""

import math

import pytest
import torch
from torch import Tensor, nn

from chunkwise.models.conformer import AttentionKind, ConformerEncoder, EncoderConfig
from chunkwise.models.context import FULL, ChunkContext
from chunkwise.nn.attention import RelativeAttention, RotaryAttention, SelfAttention
from chunkwise.nn.blocks import Blocks, cut_into_blocks
from chunkwise.nn.layer_norm import LayerNorm
from chunkwise.nn.masks import valid_frames

FORMATS = [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)]
CONTEXTS = [FULL, ChunkContext(4, None), ChunkContext(4, 1)]


def encoder(attention: AttentionKind) -> ConformerEncoder:
    torch.manual_seed(0)
    config = EncoderConfig(
        d_model=32, num_layers=2, num_heads=4, feed_forward_dim=64, kernel_size=5, subsampling_channels=8,
        attention=attention, dropout=0.0,
    )  # fmt: skip
    model = ConformerEncoder(config, num_mels=16)
    for part in model.modules():
        if isinstance(part, RelativeAttention):
            nn.init.normal_(part.content_bias)
            nn.init.normal_(part.distance_bias)
    return model


@pytest.mark.parametrize("attention", list(AttentionKind))
@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.label)
@pytest.mark.parametrize(("dtype", "tolerance"), FORMATS)
def test_half_precision_is_fp32_rounded(
    attention: AttentionKind, context: ChunkContext, dtype: torch.dtype, tolerance: float
) -> None:
    """In values and in the gradients of every parameter."""
    features, lengths = torch.randn(3, 88, 16), torch.tensor([88, 61, 5])
    results: list[tuple[Tensor, dict[str, Tensor]]] = []
    for enabled in (False, True):
        model = encoder(attention)
        with torch.autocast("cpu", dtype, enabled=enabled):
            encoded, _ = model(features, lengths, context)
        encoded = encoded.float()
        (encoded * torch.linspace(-1, 1, 32)).sum().backward()
        results.append((encoded.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
    (exact, exact_gradients), (half, half_gradients) = results
    assert float((half - exact).abs().max()) <= 4 * tolerance
    assert half_gradients.keys() == exact_gradients.keys()
    for name, gradient in exact_gradients.items():
        apart = float((half_gradients[name] - gradient).norm())
        share = 0.15 if name.startswith("subsampling.") else 2 * tolerance  # its ReLUs near 0 fall on either side
        assert apart <= share * float(gradient.norm()) + 1e-3, name


def attended(attention: SelfAttention, x: Tensor, blocks: Blocks, dtype: torch.dtype | None) -> Tensor:
    positions = attention.embed_positions(torch.arange(x.shape[1]), blocks.size, blocks.window)
    with torch.autocast("cpu", dtype or torch.float16, enabled=dtype is not None):
        return attention(x, blocks, positions).float().detach()


@pytest.mark.parametrize("kind", [RotaryAttention, RelativeAttention])
@pytest.mark.parametrize("part", ["content", "distance"])
def test_scores_are_scaled_before_the_product(kind: type[SelfAttention], part: str) -> None:
    """Products of 115,200 do not fit fp16; divided by the root of the head size, 4, they do."""
    if kind is RotaryAttention and part == "distance":
        pytest.skip("rotary positions have no distance term")
    torch.manual_seed(0)
    attention = kind(32, 2, 0.0)
    with torch.no_grad():
        attention.project_in.weight[:64] *= 0.01
        attention.project_in.bias[:64] = 85.0 if part == "content" else 0.0
        if isinstance(attention, RelativeAttention) and part == "distance":
            attention.distance_bias.fill_(85.0)
            attention.project_distance.weight.fill_(10.0)
    blocks = cut_into_blocks(valid_frames(torch.tensor([6]), 6), None, None)
    x = torch.randn(1, 6, 32)
    if isinstance(attention, RelativeAttention) and part == "distance":
        table = attention.embed_positions(torch.arange(6), 6, 6)
        queries = torch.zeros(1, 2, 6, 16)
        unscaled = 4 * attention.distance_scores(queries, table).detach().abs().max()
        assert 65504 < float(unscaled) < 4 * 65504
    half = attended(attention, x, blocks, torch.float16)
    assert half.isfinite().all()


@pytest.mark.parametrize("kind", [RotaryAttention, RelativeAttention])
@pytest.mark.parametrize(("dtype", "tolerance"), FORMATS)
def test_a_chunk_mask_and_padding_do_not_add_up_to_nothing(kind: type, dtype: torch.dtype, tolerance: float) -> None:
    """facebookresearch/fairseq#3575: two masks of the smallest number, added to scores of -20, are -inf in fp16."""
    torch.manual_seed(0)
    attention = kind(8, 2, 0.0)
    with torch.no_grad():
        attention.project_in.bias[:8], attention.project_in.bias[8:16] = 5.5, -5.5
        attention.project_in.weight[:16] *= 0.1  # scores near -60
    blocks = cut_into_blocks(valid_frames(torch.tensor([1, 5, 6]), 6), 2, 0)
    assert blocks.visible.dtype == torch.bool
    x = torch.randn(3, 6, 8)
    half, exact = attended(attention, x, blocks, dtype), attended(attention, x, blocks, None)
    assert half.isfinite().all()
    assert float((half - exact).abs().max()) <= 10 * tolerance


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_softmax_and_norms_sum_in_fp32(dtype: torch.dtype) -> None:
    """Sums of fp16 end at 65504, and stop growing by 1 at 2048: both sums here go beyond."""
    epsilon = torch.finfo(dtype).eps
    x = (torch.randn(2, 512) * 1e4).to(dtype)
    with torch.autocast("cpu", dtype):
        norm = LayerNorm(512)(x)
        keys = torch.zeros(1, 1, 5000, 16, dtype=dtype)
        values = torch.ones(1, 1, 5000, 16, dtype=dtype)
        mean = nn.functional.scaled_dot_product_attention(keys[:, :, :1], keys, values)
    exact = nn.functional.layer_norm(x.float(), (512,))
    torch.testing.assert_close(norm.float(), exact, atol=4 * epsilon, rtol=epsilon)
    assert math.isclose(float(mean.float().mean()), 1.0, abs_tol=epsilon)
