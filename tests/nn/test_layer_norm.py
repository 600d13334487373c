import pytest
import torch

from chunkwise.nn.layer_norm import LayerNorm


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_many_half_precision_frames_are_summed_in_full(dtype: torch.dtype) -> None:
    """torch's own gives 2048 in fp16 and 256 in bf16."""
    norm = LayerNorm(8)
    with torch.autocast("cpu", dtype):
        normalised = norm(torch.randn(20_000, 8, dtype=dtype))
    assert normalised.dtype == torch.float32
    normalised.sum().backward()
    assert norm.bias.grad is not None
    assert norm.bias.grad.tolist() == [20_000.0] * 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_in_full_precision_it_is_torchs_own(dtype: torch.dtype) -> None:
    norm, x = LayerNorm(8).to(dtype), torch.randn(5, 8, dtype=dtype)
    assert torch.equal(norm(x), torch.nn.functional.layer_norm(x, (8,), norm.weight, norm.bias))
