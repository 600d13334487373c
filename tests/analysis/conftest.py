"""A tiny model whose tokens depend on what it hears."""

import pytest
import torch
from torch import Tensor

from chunkwise.audio.fbank import Fbank, FbankConfig
from chunkwise.models.conformer import EncoderConfig
from chunkwise.models.context import FULL
from chunkwise.models.joiner import JoinerConfig
from chunkwise.models.predictor import PredictorConfig
from chunkwise.models.transducer import Transducer, TransducerConfig


@pytest.fixture(scope="session")
def fbank() -> Fbank:
    return Fbank(FbankConfig(num_mels=40)).eval()


@pytest.fixture(scope="session")
def waveform() -> Tensor:
    """Noise, as long as a word."""
    return 0.1 * torch.randn(12_345, generator=torch.Generator().manual_seed(5))


@pytest.fixture
def model(fbank: Fbank, waveform: Tensor) -> Transducer:
    """Two layers, kernel 5; most frames of `waveform` could start with a token, whatever the weights."""
    torch.manual_seed(3)
    encoder = EncoderConfig(
        d_model=16, num_layers=2, num_heads=2, feed_forward_dim=32, kernel_size=5, subsampling_channels=4
    )
    shape = TransducerConfig(
        encoder=encoder, predictor=PredictorConfig(dim=16), joiner=JoinerConfig(dim=16), num_mels=40, vocab_size=6
    )
    model = Transducer(shape).eval()
    features, lengths = fbank(waveform[None], torch.tensor([len(waveform)]))
    model.normalisation.set_statistics(features[0].mean(dim=0), features[0].std(dim=0))
    with torch.no_grad():
        model.joiner.output.weight.mul_(8.0)
        encoded, _ = model.encode(features, lengths, FULL)
        start = model.joiner.project_predictor(model.predictor(torch.zeros(1, 0, dtype=torch.long))[0])
        logits = model.joiner(model.joiner.project_encoder(encoded[0]), start)
        model.joiner.output.bias[0] += (logits[:, 1:].amax(dim=1) - logits[:, 0]).quantile(0.2)
    return model
