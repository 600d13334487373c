"""The objective of training: from features and tokens to one loss per utterance."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from chunkwise.losses.ctc import ctc_loss
from chunkwise.losses.pruned import (
    Smoothing,
    prune_predictions,
    prune_ranges,
    pruned_transducer_loss,
    simple_transducer_loss,
)
from chunkwise.losses.transducer import full_transducer_loss
from chunkwise.models.context import ChunkContext
from chunkwise.models.transducer import Transducer
from chunkwise.nn.masks import valid_frames
from chunkwise.typing import BLANK

Augment = Callable[[Tensor, Tensor], Tensor]
"""Normalised features and their lengths to augmented features."""


class LossKind(StrEnum):
    """The transducer losses."""

    full = "full"
    pruned = "pruned"


@dataclass(frozen=True, slots=True, kw_only=True)
class LossConfig:
    """What training minimises: a transducer loss plus a weighted auxiliary CTC loss."""

    kind: LossKind = LossKind.full
    ctc_weight: float = 0.0
    prune_range: int = 5  # pruned: symbols kept per encoder frame
    simple_weight: float = 0.5  # pruned: weight of the simple loss
    lm_scale: float = 0.25  # pruned: smoothing with the predictor-only model
    am_scale: float = 0.0  # pruned: smoothing with the encoder-only model
    warmup_steps: int = 0  # pruned: steps over which the pruned loss is faded in

    def __post_init__(self) -> None:
        if not 0.0 <= self.ctc_weight < 1.0:
            raise ValueError(f"loss.ctc_weight={self.ctc_weight} must be at least 0 and below 1; try 0.2")
        if self.prune_range < 2:
            raise ValueError(f"loss.prune_range={self.prune_range} must be 2 or more, or no path survives; try 5")
        if self.simple_weight <= 0.0:
            raise ValueError(
                f"loss.simple_weight={self.simple_weight} must be above 0, or pruning never learns; try 0.5"
            )
        if min(self.lm_scale, self.am_scale) < 0.0 or self.lm_scale + self.am_scale >= 1.0:
            raise ValueError(
                f"loss.lm_scale={self.lm_scale} and loss.am_scale={self.am_scale} must be 0 or more "
                "and add up to less than 1; try 0.25 and 0.0"
            )
        if self.warmup_steps < 0:
            raise ValueError(f"loss.warmup_steps={self.warmup_steps} must be 0 or more")

    def scales(self, step: int) -> tuple[float, float]:
        """The weights of the simple and of the pruned loss at an optimizer step.

        During warm-up the simple loss falls from 1 to its weight while the pruned loss rises from 0.1
        to 1, as icefall does; neither is ever absent, so every parameter always has a gradient.

        >>> LossConfig(warmup_steps=100).scales(50)
        (0.75, 0.55)
        """
        progress = min(step / self.warmup_steps, 1.0) if self.warmup_steps else 1.0
        return 1.0 - progress * (1.0 - self.simple_weight), 0.1 + 0.9 * progress


class Losses(NamedTuple):
    """One value per utterance, float32, not reduced; `total` is what training minimises."""

    total: Float[Tensor, " batch"]
    transducer: Float[Tensor, " batch"]
    ctc: Float[Tensor, " batch"] | None


class Objective(nn.Module):
    """The model and the heads that only training needs; what the loss does not use is not built."""

    def __init__(self, model: Transducer, config: LossConfig) -> None:
        super().__init__()
        self.model = model
        self.config = config
        encoder_dim, vocab_size = model.config.encoder.d_model, model.config.vocab_size
        if config.ctc_weight > 0:
            self.ctc_head = nn.Linear(encoder_dim, vocab_size)
        if config.kind is LossKind.pruned:
            self.simple_encoder = nn.Linear(encoder_dim, vocab_size)
            self.simple_predictor = nn.Linear(model.predictor.dim, vocab_size)

    def forward(
        self,
        features: Float[Tensor, "batch frames mels"],
        lengths: Int[Tensor, " batch"],
        tokens: Int[Tensor, "batch max_symbols"],
        token_lengths: Int[Tensor, " batch"],
        context: ChunkContext,
        step: int = 0,
        augment: Augment | None = None,
    ) -> Losses:
        """The losses of a batch of utterances, from features as the filter bank gives them."""
        normalised = self.model.normalisation(features, lengths)
        if augment is not None:
            normalised = augment(normalised, lengths)
        encoded, encoded_lengths = self.model.encoder(normalised, lengths, context)
        encoded = encoded[:, : max(int(encoded_lengths.max()), 1)]
        encoded = encoded.masked_fill(~valid_frames(encoded_lengths, encoded.shape[1])[:, :, None], 0.0)
        num_symbols = int(token_lengths.max())
        tokens = tokens[:, :num_symbols].masked_fill(~valid_frames(token_lengths, num_symbols), BLANK)

        target = (tokens, encoded_lengths, token_lengths)
        transducer = self._pruned(encoded, *target, step) if self._is_pruned else self._full(encoded, *target)
        if self.config.ctc_weight == 0:
            return Losses(transducer, transducer, None)
        ctc = ctc_loss(self.ctc_head(encoded), *target)
        return Losses(transducer + self.config.ctc_weight * (ctc - transducer), transducer, ctc)

    @property
    def _is_pruned(self) -> bool:
        return self.config.kind is LossKind.pruned

    def _full(
        self,
        encoded: Float[Tensor, "batch encoder_frames d_model"],
        tokens: Int[Tensor, "batch symbols"],
        lengths: Int[Tensor, " batch"],
        token_lengths: Int[Tensor, " batch"],
    ) -> Float[Tensor, " batch"]:
        joiner = self.model.joiner
        predictions = joiner.project_predictor(self.model.predictor(tokens))
        logits = joiner(joiner.project_encoder(encoded)[:, :, None], predictions[:, None])
        return full_transducer_loss(logits, tokens, lengths, token_lengths)

    def _pruned(
        self,
        encoded: Float[Tensor, "batch encoder_frames d_model"],
        tokens: Int[Tensor, "batch symbols"],
        lengths: Int[Tensor, " batch"],
        token_lengths: Int[Tensor, " batch"],
        step: int,
    ) -> Float[Tensor, " batch"]:
        joiner, predicted = self.model.joiner, self.model.predictor(tokens)
        am, lm = self.simple_encoder(encoded), self.simple_predictor(predicted)
        smoothing = Smoothing(self.config.lm_scale, self.config.am_scale)
        simple, paths = simple_transducer_loss(am, lm, tokens, lengths, token_lengths, smoothing)
        ranges = prune_ranges(paths, lengths, token_lengths, self.config.prune_range)
        predictions = prune_predictions(joiner.project_predictor(predicted), ranges)
        logits = joiner(joiner.project_encoder(encoded)[:, :, None], predictions)
        pruned = pruned_transducer_loss(logits, tokens, ranges, lengths, token_lengths)
        simple_scale, pruned_scale = self.config.scales(step)
        return simple_scale * simple + pruned_scale * pruned
