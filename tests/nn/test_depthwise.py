import pytest
import torch
from torch.nn.functional import conv1d

from chunkwise.nn.depthwise import depthwise


@pytest.mark.parametrize(("rows", "extended", "taps"), [(1, 1, 1), (2, 9, 3), (5, 31, 31), (3, 4, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_equals_torchs_convolution_and_gradients(rows: int, extended: int, taps: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(taps)
    x = torch.randn(rows, extended, 6, generator=generator, dtype=dtype, requires_grad=True)
    kernel = torch.randn(6, taps, generator=generator, dtype=dtype, requires_grad=True)
    ours = depthwise(x, kernel)
    theirs = conv1d(x.transpose(1, 2), kernel[:, None], groups=6).transpose(1, 2)
    torch.testing.assert_close(ours, theirs)
    gradient = torch.randn(ours.shape, generator=generator, dtype=dtype)
    for one, other in zip(
        torch.autograd.grad(ours, (x, kernel), gradient),
        torch.autograd.grad(theirs, (x, kernel), gradient),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_its_gradient_is_that_of_finite_differences() -> None:
    x = torch.randn(2, 8, 3, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(depthwise, (x, kernel))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_trains(dtype: torch.dtype) -> None:
    x = torch.randn(2, 40, 8, dtype=dtype, requires_grad=True)
    kernel = torch.randn(8, 7, dtype=dtype, requires_grad=True)
    depthwise(x, kernel).float().square().sum().backward()
    for part in (x, kernel):
        assert part.grad is not None
        assert part.grad.dtype == dtype
        assert torch.isfinite(part.grad).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("frames_dtype", [torch.float32, None])
def test_autocast_trains_as_full_precision_does(dtype: torch.dtype, frames_dtype: torch.dtype | None) -> None:
    """The parameter is float32, the frames may be either: forward and backward cast both, the gradients fit both."""
    torch.manual_seed(0)
    frames, taps = torch.randn(2, 40, 8), torch.randn(8, 7)
    gradients = {}
    for enabled in (False, True):
        x = frames.clone().to(frames_dtype or (dtype if enabled else torch.float32)).requires_grad_()
        kernel = taps.clone().requires_grad_()
        with torch.autocast("cpu", dtype, enabled=enabled):
            y = depthwise(x, kernel)
        assert y.dtype == (dtype if enabled else torch.float32)
        y.float().square().mean().backward()
        assert x.grad is not None
        assert kernel.grad is not None
        assert (x.grad.dtype, kernel.grad.dtype) == (x.dtype, torch.float32)
        gradients[enabled] = x.grad.float(), kernel.grad
    for half, full in zip(gradients[True], gradients[False], strict=True):
        torch.testing.assert_close(half, full, atol=0.02 * float(full.abs().max()), rtol=0)
