"""Two methods, one answer: also with tiny and huge pokes, and where rounding spreads over everything."""

import pytest
import torch
from torch import Tensor

from chunkwise.analysis.measurement import NumberFormat, Strengths, gradient_strengths, poke_strengths

INPUTS = 32


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def causal_by_fft(inputs: Tensor) -> Tensor:
    """A causal filter of 8 taps whose rounding, by the FFT, reaches every output."""
    kernel = 0.7 ** torch.arange(8, dtype=inputs.dtype)
    spectrum = torch.fft.rfft(inputs, 2 * INPUTS, dim=1) * torch.fft.rfft(kernel, 2 * INPUTS)[:, None]
    return torch.fft.irfft(spectrum, 2 * INPUTS, dim=1)[:, :INPUTS]


def measured(method: str, dtype: torch.dtype, poke: float = 1.0) -> Strengths:
    bases = torch.randn(2, INPUTS, 3, generator=rng()).to(dtype)
    tolerance = NumberFormat(str(dtype).removeprefix("torch.")).tolerance
    if method == "gradient":
        return gradient_strengths(causal_by_fft, bases, INPUTS, tolerance, rng(), batch_rows=10)
    return poke_strengths(causal_by_fft, bases, torch.arange(INPUTS), tolerance, rng(), poke, batch_rows=10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("poke", [1e-3, 1.0, 1e10])
def test_pokes_and_gradients_agree_though_rounding_reaches_everything(dtype: torch.dtype, poke: float) -> None:
    steps = torch.arange(INPUTS)[:, None] - torch.arange(INPUTS)
    expected = (steps >= 0) & (steps < 8)
    by_pokes, by_gradients = measured("perturbation", dtype, poke), measured("gradient", dtype)
    assert torch.equal(by_gradients.seen, expected)
    assert torch.equal(by_pokes.seen, expected)
    if poke == 1e10 and dtype is torch.float32:
        assert bool((by_pokes.values[~expected] > 0).any()), "the rounding that the tolerance is for did not show"


def test_both_methods_estimate_the_same_strengths() -> None:
    generator = rng()
    weight = torch.randn(5, 40, 7, 60, generator=generator, dtype=torch.float64)
    scale = torch.rand(5, 7, generator=generator, dtype=torch.float64) + 0.1

    def function(inputs: Tensor) -> Tensor:
        return torch.einsum("bic,odic->bod", inputs, weight * scale[:, None, :, None])

    bases = torch.zeros(4, 7, 60, dtype=torch.float64)
    gradients = gradient_strengths(function, bases, 5, 1e-10, rng())
    pokes = poke_strengths(function, bases, torch.arange(7), 1e-10, rng(), poke=0.1)
    norms = weight.square().sum(dim=(1, 3)).sqrt() * scale
    for strengths in (gradients, pokes):
        assert float((strengths.values / norms).log().abs().max()) < 0.5


def test_a_dependency_that_only_the_second_draw_can_show_is_found() -> None:
    def function(inputs: Tensor) -> Tensor:
        gate = (inputs[:, :1] > 100.0).to(inputs)  # closed in the first base, open in the second
        return inputs + gate * inputs.roll(-1, dims=1)

    bases = torch.zeros(2, 4, 1, dtype=torch.float64)
    bases[1, 0] = 200.0
    seen = poke_strengths(function, bases, torch.arange(4), 1e-10, rng()).seen
    assert torch.equal(seen, torch.eye(4, dtype=torch.bool) | torch.eye(4, dtype=torch.bool).roll(1, dims=1))


def test_only_the_given_positions_are_poked() -> None:
    bases = torch.zeros(1, INPUTS, 3, dtype=torch.float64)
    found = poke_strengths(causal_by_fft, bases, torch.tensor([3, 20]), 1e-10, rng())
    assert found.seen[:, 0].nonzero()[:, 0].tolist() == list(range(3, 11))
    assert found.seen[:, 1].nonzero()[:, 0].tolist() == list(range(20, 28))


def test_a_poke_that_overflows_is_refused_with_a_remedy() -> None:
    bases = torch.zeros(1, 4, 1)
    with pytest.raises(ValueError, match=r"overflows float32; try a smaller analysis\.poke"):
        poke_strengths(lambda inputs: inputs.square(), bases, torch.arange(4), 1e-5, rng(), poke=1e30)


def test_a_system_with_dropout_is_refused() -> None:
    dropout = torch.nn.Dropout(0.5)
    with pytest.raises(ValueError, match="evaluation mode"):
        poke_strengths(dropout, torch.ones(1, 20, 3), torch.arange(20), 1e-5, rng())
