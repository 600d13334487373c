"""Packed weights give the products of plain ones, follow every change, and stay out of gradients and copies."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from chunkwise.nn.linear import PACKS, Linear


def layer(bias: bool = True) -> Linear:
    torch.manual_seed(0)
    return Linear(24, 40, bias=bias)


def plain(layer: Linear, x: Tensor) -> Tensor:
    return linear(x, layer.weight, layer.bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(24,), (1, 24), (3, 16, 24), (2, 400, 24), (0, 24), (2, 0, 24)])
def test_products_are_those_of_the_plain_layer(shape: tuple[int, ...], bias: bool) -> None:
    x, product = torch.randn(shape), layer(bias)
    with torch.no_grad():
        torch.testing.assert_close(product(x), plain(product, x))
        torch.testing.assert_close(product.with_silu(x), silu(plain(product, x)))
    torch.testing.assert_close(product.with_silu(x), silu(plain(product, x)))


@torch.no_grad()
def test_frames_need_not_lie_side_by_side() -> None:
    x = torch.randn(24, 5, 3).transpose(0, 2)
    torch.testing.assert_close(layer()(x), plain(layer(), x))


@pytest.mark.skipif(not PACKS, reason="torch is built without oneDNN")
def test_only_products_without_gradient_are_packed() -> None:
    product, x = layer(), torch.randn(4, 24)
    product(x).sum().backward()
    assert product.weight.grad is not None
    assert product._packed is None
    with torch.inference_mode():
        product(x)
    assert product._packed is not None


def test_changed_weights_are_packed_again() -> None:
    product, x = layer(), torch.randn(4, 24)
    optimizer = torch.optim.SGD(product.parameters(), lr=0.5)
    for _ in range(2):
        with torch.inference_mode():
            torch.testing.assert_close(product(x), plain(product, x))
        product(x).square().sum().backward()
        optimizer.step()
    product.load_state_dict({name: weight + 1 for name, weight in product.state_dict().items()})
    with torch.inference_mode():
        torch.testing.assert_close(product(x), plain(product, x))


def test_exchanged_weights_are_packed_again() -> None:
    product, x = layer(), torch.randn(4, 24)
    for exchange in (lambda new: setattr(product, "weight", new), lambda new: setattr(product.weight, "data", new)):
        with torch.inference_mode():
            product(x)
        exchange(torch.nn.Parameter(torch.randn(40, 24)))
        with torch.inference_mode():
            torch.testing.assert_close(product(x), plain(product, x))


@torch.inference_mode()
def test_other_precisions_are_left_to_torch() -> None:
    x = torch.randn(4, 24)
    layer()(x)
    for dtype in (torch.float64, torch.bfloat16):
        product = layer().to(dtype)
        torch.testing.assert_close(product(x.to(dtype)), plain(product, x.to(dtype)), rtol=0, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer()(x).dtype == torch.bfloat16


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_a_used_layer_can_be_copied(copied: Callable[[Linear], Linear]) -> None:
    product, x = layer(), torch.randn(4, 24)
    with torch.inference_mode():
        expected = product(x)
    other = copied(product)
    with torch.no_grad():
        other.weight.zero_()
        torch.testing.assert_close(other(x), other.bias.expand(4, -1))
        torch.testing.assert_close(product(x), expected, rtol=0, atol=0)
    assert list(other.state_dict()) == ["weight", "bias"]
