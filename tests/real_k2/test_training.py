"""A small transducer trains with the real k2, and its loss curve is that of the native backend."""

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("k2", reason="needs k2; `make test-k2` runs this in a virtual environment that has it")

from chunkwise.losses.backend import PrunedLosses, Target, pruned_losses  # noqa: E402 (after the skip)
from chunkwise.losses.config import Backend, LossConfig, LossKind  # noqa: E402
from chunkwise.losses.pruned import prune_predictions  # noqa: E402
from chunkwise.models.joiner import Joiner  # noqa: E402
from chunkwise.models.predictor import PredictorConfig, StatelessPredictor  # noqa: E402

VOCAB, DIM, STEPS = 12, 32, 300
CONFIG = LossConfig(kind=LossKind.pruned, prune_range=3, warmup_steps=60, am_scale=0.1, delay_penalty=0.01)


class SmallTransducer(nn.Module):
    """An encoder of one recurrent layer, with the package's predictor, joiner and pruned loss."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(DIM, DIM, batch_first=True)
        self.predictor = StatelessPredictor(PredictorConfig(dim=DIM, dropout=0.0), VOCAB)
        self.joiner = Joiner(DIM, DIM, DIM, VOCAB)
        self.simple_encoder, self.simple_predictor = nn.Linear(DIM, VOCAB), nn.Linear(DIM, VOCAB)

    def forward(self, features: Tensor, target: Target, step: int, backend: Backend) -> PrunedLosses:
        encoded, predicted = self.encoder(features)[0], self.predictor(target.tokens)

        def join(ranges: Tensor) -> Tensor:
            predictions = prune_predictions(self.joiner.project_predictor(predicted), ranges)
            return self.joiner(self.joiner.project_encoder(encoded)[:, :, None], predictions)

        am, lm = self.simple_encoder(encoded), self.simple_predictor(predicted)
        return pruned_losses(backend, am, lm, join, target, CONFIG.pruning(step))


def speech(step: int, voices: Tensor) -> tuple[Tensor, Target]:
    """Four utterances: each token is heard for three frames, in noise."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(1, VOCAB, (4, 7), generator=generator)
    token_lengths = torch.tensor([7, 4, 5, step % 3])
    features = voices[tokens].repeat_interleave(3, dim=1)
    noise = torch.randn(features.shape, generator=generator)
    return features + 0.3 * noise, Target(tokens, (3 * token_lengths).clamp(min=2), token_lengths)


def loss_curve(backend: Backend) -> Tensor:
    """The loss per token at each step."""
    torch.manual_seed(0)
    model = SmallTransducer()
    voices = torch.randn(VOCAB, DIM)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for step in range(STEPS):
        features, target = speech(step, voices)
        simple, pruned = model(features, target, step, backend)
        simple_scale, pruned_scale = CONFIG.scales(step)
        loss = (simple_scale * simple + pruned_scale * pruned).sum() / target.token_lengths.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def test_the_loss_curves_are_one() -> None:
    curves = [loss_curve(backend) for backend in (Backend.k2, Backend.native)]
    torch.testing.assert_close(*curves, rtol=1e-5, atol=0)
    assert curves[0][-20:].mean() < 0.3 * curves[0][:20].mean()
