"""The joiner: encoder frame and prediction to scores over the output units."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinerConfig:
    """The joiner's shape."""

    dim: int = 256

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise ValueError(f"joiner.dim={self.dim} must be 1 or more")


class Joiner(nn.Module):
    """logits = W tanh(W_e encoded + W_p predicted); both projections can be done once and reused.

    Reference: Graves et al. 2013, "Speech Recognition with Deep Recurrent Neural Networks", arXiv:1303.5778.
    """

    def __init__(self, encoder_dim: int, predictor_dim: int, dim: int, vocab_size: int) -> None:
        super().__init__()
        self.dim = dim
        self.vocab_size = vocab_size
        self.project_encoder = nn.Linear(encoder_dim, dim)
        self.project_predictor = nn.Linear(predictor_dim, dim)
        self.output = nn.Linear(dim, vocab_size)

    def forward(
        self, encoder_projection: Float[Tensor, "*axes dim"], predictor_projection: Float[Tensor, "*other_axes dim"]
    ) -> Float[Tensor, "*joined vocab"]:
        """Unnormalised scores; the projections are broadcast against each other."""
        return self.output((encoder_projection + predictor_projection).tanh())
