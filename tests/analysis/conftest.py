"""A tiny model whose tokens depend on what it hears."""

import pytest
import torch

from chunkwise.audio.fbank import Fbank, FbankConfig
from chunkwise.models.conformer import EncoderConfig
from chunkwise.models.joiner import JoinerConfig
from chunkwise.models.predictor import PredictorConfig
from chunkwise.models.transducer import Transducer, TransducerConfig


@pytest.fixture(scope="session")
def fbank() -> Fbank:
    return Fbank(FbankConfig(num_mels=40)).eval()


@pytest.fixture
def model(fbank: Fbank) -> Transducer:
    """Two layers, kernel 5."""
    torch.manual_seed(3)
    encoder = EncoderConfig(
        d_model=16, num_layers=2, num_heads=2, feed_forward_dim=32, kernel_size=5, subsampling_channels=4
    )
    shape = TransducerConfig(
        encoder=encoder, predictor=PredictorConfig(dim=16), joiner=JoinerConfig(dim=16), num_mels=40, vocab_size=6
    )
    model = Transducer(shape).eval()
    features, _ = fbank(0.1 * torch.randn(1, 16_000), torch.tensor([16_000]))
    model.normalisation.set_statistics(features[0].mean(dim=0), features[0].std(dim=0))
    with torch.no_grad():
        model.joiner.output.weight.mul_(8.0)
        model.joiner.output.bias[0] += 1.5
    return model
