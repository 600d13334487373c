"""Random batches on which k2 and native must agree; like all that is tested here, this also runs on torch 1.13."""

import random
from typing import NamedTuple

import torch
from torch import Tensor

from chunkwise.losses.backend import Target
from chunkwise.losses.pruned import Pruning, Smoothing, prune_predictions

TOLERANCE = 1e-4
"""Relative to the largest number of a tensor."""


class Case(NamedTuple):
    """Scores of a simple model, those of a joiner's two sides, and its output layer."""

    am: Tensor
    lm: Tensor
    encoded: Tensor
    predicted: Tensor
    output: Tensor
    target: Target
    pruning: Pruning

    @property
    def leaves(self) -> tuple[Tensor, ...]:
        return self.am, self.lm, self.encoded, self.predicted, self.output

    def join(self, ranges: Tensor) -> Tensor:
        """A joiner's logits."""
        return (self.encoded[:, :, None] + prune_predictions(self.predicted, ranges)).tanh() @ self.output


def random_case(seed: int, dtype: torch.dtype = torch.float32, scales: tuple[float, ...] = (0.3, 1.0, 4.0)) -> Case:
    """Batches of one to five utterances; every third has an empty one, one of a single frame, one of few frames."""
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    batch, num_frames, vocab = rng.randint(1, 5), rng.randint(1, 40), rng.choice((2, 7, 50))
    num_symbols = rng.randint(1, num_frames)
    lengths = [rng.randint(1, num_frames) for _ in range(batch)]
    symbols = [rng.randint(0, min(num_symbols, 2 * length)) for length in lengths]
    if seed % 3 == 0 and batch >= 3:
        lengths[0], lengths[1], symbols[2] = 1, max(1, num_symbols // 2), 0
        symbols[0], symbols[1] = min(num_symbols, 3), num_symbols
    scale = rng.choice(scales)

    def draw(*shape: int) -> Tensor:
        return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()

    return Case(
        am=draw(batch, num_frames, vocab),
        lm=draw(batch, num_symbols + 1, vocab),
        encoded=draw(batch, num_frames, 8),
        predicted=draw(batch, num_symbols + 1, 8),
        output=draw(8, vocab),
        target=Target(
            torch.randint(1, vocab, (batch, num_symbols), generator=generator),
            torch.tensor(lengths),
            torch.tensor(symbols),
        ),
        pruning=Pruning(
            rng.choice((2, 3, 5, 100)),
            rng.choice((Smoothing(), Smoothing(0.25, 0.0), Smoothing(0.0, 0.1), Smoothing(0.2, 0.15))),
            rng.choice((0.0, 0.01, 0.3)),
        ),
    )


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Two tensors are equal but for `TOLERANCE`."""
    assert found.shape == expected.shape
    assert found.isfinite().all()
    difference, largest = (found - expected).abs().max(), expected.abs().max()
    assert difference <= TOLERANCE * largest, f"{float(difference):.2e} of {float(largest):.2e}"
