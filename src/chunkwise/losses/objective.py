"""The objective of training: from features and tokens to one loss per utterance."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from chunkwise.losses.backend import Target, choose_backend, pruned_losses
from chunkwise.losses.config import LossConfig, LossKind
from chunkwise.losses.ctc import ctc_loss
from chunkwise.losses.pruned import prune_predictions
from chunkwise.losses.transducer import full_transducer_loss
from chunkwise.models.context import ChunkContext
from chunkwise.models.transducer import Transducer
from chunkwise.nn.masks import valid_frames
from chunkwise.typing import BLANK

Augment = Callable[[Tensor, Tensor], Tensor]
"""Normalised features and their lengths to augmented features."""


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
        self.notice: str | None = None  # what the user should know of the choice of a backend
        encoder_dim, vocab_size = model.config.encoder.d_model, model.config.vocab_size
        if config.ctc_weight > 0:
            self.ctc_head = nn.Linear(encoder_dim, vocab_size)
        if config.kind is LossKind.pruned:
            self.simple_encoder = nn.Linear(encoder_dim, vocab_size)
            self.simple_predictor = nn.Linear(model.predictor.dim, vocab_size)
            self.backend, self.notice = choose_backend(config.backend, next(model.parameters()).device)

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

        target = Target(tokens, encoded_lengths, token_lengths)
        transducer = self._pruned(encoded, target, step) if self._is_pruned else self._full(encoded, target)
        if self.config.ctc_weight == 0:
            return Losses(transducer, transducer, None)
        ctc = ctc_loss(self.ctc_head(encoded), *target)
        return Losses(transducer + self.config.ctc_weight * (ctc - transducer), transducer, ctc)

    @property
    def _is_pruned(self) -> bool:
        return self.config.kind is LossKind.pruned

    def _full(self, encoded: Float[Tensor, "batch encoder_frames d_model"], target: Target) -> Float[Tensor, " batch"]:
        joiner = self.model.joiner
        predictions = joiner.project_predictor(self.model.predictor(target.tokens))
        logits = joiner(joiner.project_encoder(encoded)[:, :, None], predictions[:, None])
        return full_transducer_loss(logits, *target)

    def _pruned(
        self, encoded: Float[Tensor, "batch encoder_frames d_model"], target: Target, step: int
    ) -> Float[Tensor, " batch"]:
        joiner, predicted = self.model.joiner, self.model.predictor(target.tokens)

        def join(
            ranges: Int[Tensor, "batch encoder_frames range"],
        ) -> Float[Tensor, "batch encoder_frames range vocab"]:
            predictions = prune_predictions(joiner.project_predictor(predicted), ranges)
            return joiner(joiner.project_encoder(encoded)[:, :, None], predictions)

        am, lm = self.simple_encoder(encoded), self.simple_predictor(predicted)
        simple, pruned = pruned_losses(self.backend, am, lm, join, target, self.config.pruning(step))
        simple_scale, pruned_scale = self.config.scales(step)
        return simple_scale * simple + pruned_scale * pruned
