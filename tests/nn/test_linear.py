"""Packed weights give the products of plain ones, follow every change, and stay out of gradients and copies."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from chunkwise.nn.linear import PACKS, Linear, pack_weights
from chunkwise.training.optimizer import OptimizerConfig, build_optimizer


def layer(bias: bool = True) -> Linear:
    torch.manual_seed(0)
    made = Linear(24, 40, bias=bias).eval()
    pack_weights(made)
    return made


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
@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer(torch.ones(24)),  # a product with a gradient: a step may follow
        lambda layer: layer.train(),
        lambda layer: layer.load_state_dict(layer.state_dict()),
        lambda layer: layer.double(),
    ],
)
def test_nothing_stays_packed_that_may_change(change: Callable[[Linear], object]) -> None:
    product = layer()
    assert product.blocks is not None
    change(product)
    assert product.blocks is None


def test_training_between_two_inferences_is_seen() -> None:
    # a fused step does not count the weight's changes
    product, x = layer(), torch.randn(4, 24)
    optimizer = build_optimizer(product, OptimizerConfig(lr=0.1))
    for _ in range(3):
        with torch.inference_mode():
            torch.testing.assert_close(product(x), plain(product, x))
        product(x).square().sum().backward()
        with torch.inference_mode():  # also between the gradient and the step
            torch.testing.assert_close(product(x), plain(product, x))
        optimizer.step()


@torch.inference_mode()
def test_other_precisions_are_left_to_torch() -> None:
    x = torch.randn(4, 24)
    layer()(x)
    for dtype in (torch.float64, torch.bfloat16):
        product = layer()
        torch.testing.assert_close(product(x), plain(product, x))
        product = product.to(dtype)
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
