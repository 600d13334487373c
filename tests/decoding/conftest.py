"""Models whose tokens are known: scripted joiners on real predictors."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from chunkwise.models.conformer import EncoderConfig
from chunkwise.models.joiner import Joiner, JoinerConfig
from chunkwise.models.predictor import PredictorConfig, PredictorKind
from chunkwise.models.transducer import Transducer, TransducerConfig


class ConstantJoiner(Joiner):
    """The same distribution whatever it is given."""

    def __init__(self, probabilities: list[float]) -> None:
        super().__init__(8, 8, 4, len(probabilities))
        self.probabilities = nn.Parameter(torch.tensor(probabilities))

    def forward(self, encoder_projection: Tensor, predictor_projection: Tensor) -> Tensor:
        axes = torch.broadcast_shapes(encoder_projection.shape, predictor_projection.shape)[:-1]
        return self.probabilities.log().expand(*axes, -1)


@pytest.fixture
def constant_model(small_model: Callable[..., Transducer]) -> Callable[[list[float]], Transducer]:
    """A model that always gives these probabilities."""

    def build(probabilities: list[float]) -> Transducer:
        model = small_model(vocab_size=len(probabilities))
        model.joiner = ConstantJoiner(probabilities)
        return model

    return build


@pytest.fixture
def small_model() -> Callable[..., Transducer]:
    """A model of random weights, loud enough that it emits often, and differently after different tokens."""

    def build(
        kind: PredictorKind = PredictorKind.stateless, vocab_size: int = 6, blank_bias: float = 1.0
    ) -> Transducer:
        torch.manual_seed(3)
        encoder = EncoderConfig(
            d_model=8, num_layers=1, num_heads=2, feed_forward_dim=8, kernel_size=3, subsampling_channels=2
        )
        predictor = PredictorConfig(kind=kind, dim=8, context_size=3)
        parts = TransducerConfig(
            encoder=encoder, predictor=predictor, joiner=JoinerConfig(dim=16), num_mels=8, vocab_size=vocab_size
        )
        model = Transducer(parts).eval()
        with torch.no_grad():
            for weight in model.joiner.parameters():
                weight.mul_(3.0)
            model.joiner.project_predictor.weight.mul_(4.0)
            model.joiner.output.bias[0] += blank_bias
        return model

    return build
