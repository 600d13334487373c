"""The Conformer's position-wise feed-forward module."""

from jaxtyping import Float
from torch import Tensor, nn

from chunkwise.nn.layer_norm import LayerNorm
from chunkwise.nn.linear import Linear


class FeedForward(nn.Sequential):
    """Pre-normalised feed-forward module: norm, expand, SiLU, project.

    Reference: Gulati et al. 2020, "Conformer", arXiv:2005.08100, section 2.3.
    """

    def __init__(self, d_model: int, hidden_dim: int, dropout: float) -> None:
        super().__init__(
            LayerNorm(d_model),
            Linear(d_model, hidden_dim),
            nn.SiLU(),
            nn.Dropout(dropout),
            Linear(hidden_dim, d_model),
            nn.Dropout(dropout),
        )

    def forward(self, input: Float[Tensor, "*axes d_model"]) -> Float[Tensor, "*axes d_model"]:
        """One frame at a time: nothing to carry between pieces."""
        if self.training:
            return super().forward(input)
        norm, expand, _, _, project, _ = self
        assert isinstance(expand, Linear)
        return project(expand.with_silu(norm(input)))
