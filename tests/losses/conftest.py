"""Slow and obvious references for the losses, and a small model."""

import math
from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from torch import Tensor

from chunkwise.models.conformer import EncoderConfig
from chunkwise.models.joiner import JoinerConfig
from chunkwise.models.predictor import PredictorConfig, PredictorKind
from chunkwise.models.transducer import Transducer, TransducerConfig


@pytest.fixture
def brute_force_loss() -> Callable[..., Tensor]:
    """-log of the explicit sum over all paths of one utterance; logits are [frames, symbols + 1, vocab]."""

    def loss(logits: Tensor, target: list[int], delay_penalty: float = 0.0) -> Tensor:
        num_frames, num_symbols = logits.shape[0], len(target)
        scores = logits.log_softmax(dim=-1)
        paths = []
        for emissions in combinations(range(num_frames + num_symbols - 1), num_symbols):  # the last arc is blank
            frame = symbol = 0
            score = logits.new_zeros(())
            for arc in range(num_frames + num_symbols):
                if arc in emissions:
                    score = score + scores[frame, symbol, target[symbol]]
                    score = score - delay_penalty * (frame - (num_frames - 1) / 2)
                    symbol += 1
                else:
                    score = score + scores[frame, symbol, 0]
                    frame += 1
            paths.append(score)
        return -torch.stack(paths).logsumexp(dim=0)

    return loss


@pytest.fixture
def uniform_loss() -> Callable[[int, int, int], float]:
    """(T + U) ln V - ln C(T + U - 1, U): the loss of all-zero logits."""

    def loss(num_frames: int, num_symbols: int, vocab_size: int) -> float:
        num_paths = math.comb(num_frames + num_symbols - 1, num_symbols)
        return (num_frames + num_symbols) * math.log(vocab_size) - math.log(num_paths)

    return loss


@pytest.fixture
def tiny_transducer() -> Callable[[PredictorKind], Transducer]:
    """A model of one small layer, with fixed weights."""

    def build(kind: PredictorKind = PredictorKind.stateless) -> Transducer:
        torch.manual_seed(1)
        encoder = EncoderConfig(
            d_model=16, num_layers=1, num_heads=2, feed_forward_dim=16, kernel_size=3, subsampling_channels=4
        )
        predictor = PredictorConfig(kind=kind, dim=16)
        config = TransducerConfig(
            encoder=encoder, predictor=predictor, joiner=JoinerConfig(dim=16), num_mels=8, vocab_size=7
        )
        return Transducer(config).eval()

    return build
