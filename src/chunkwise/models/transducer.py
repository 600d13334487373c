"""The Conformer-Transducer: everything between features and scores."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from chunkwise.models.conformer import ConformerEncoder, EncoderConfig
from chunkwise.models.context import ChunkContext
from chunkwise.models.joiner import Joiner, JoinerConfig
from chunkwise.models.predictor import PredictorConfig, build_predictor
from chunkwise.nn.masks import valid_frames


@dataclass(frozen=True, slots=True, kw_only=True)
class TransducerConfig:
    """The parts' shapes, and what ties them to features and tokenizer."""

    encoder: EncoderConfig
    predictor: PredictorConfig
    joiner: JoinerConfig
    num_mels: int
    vocab_size: int  # blank included


class FeatureNormalisation(nn.Module):
    """Global mean and variance normalisation, kept with the model: (features - mean) / std per mel bin.

    The statistics are those of the training set and never change afterwards, so that an utterance's
    features do not depend on its neighbours, its length or how much of it has arrived.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, num_mels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(num_mels))
        self.register_buffer("std", torch.ones(num_mels))

    def set_statistics(
        self, mean: Float[Tensor, " mels"], std: Float[Tensor, " mels"], least_std: float = 1e-2
    ) -> None:
        """Keep the training set's statistics; a constant mel bin must not be blown up."""
        self.mean.copy_(mean)
        self.std.copy_(std.clamp(min=least_std))

    def forward(
        self, features: Float[Tensor, "batch frames mels"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch frames mels"]:
        """Normalised features, zeros past each utterance's length."""
        padding = ~valid_frames(lengths, features.shape[1])[:, :, None]
        return self.stream(features).masked_fill(padding, 0.0)

    def stream(self, features: Float[Tensor, "batch frames mels"]) -> Float[Tensor, "batch frames mels"]:
        """Normalised features of a piece without padding."""
        return (features - self.mean) / self.std


class Transducer(nn.Module):
    """Normalisation, encoder, predictor and joiner."""

    frames_per_encoder_frame = ConformerEncoder.stride

    def __init__(self, config: TransducerConfig) -> None:
        super().__init__()
        self.config = config
        self.normalisation = FeatureNormalisation(config.num_mels)
        self.encoder = ConformerEncoder(config.encoder, config.num_mels)
        self.predictor = build_predictor(config.predictor, config.vocab_size)
        self.joiner = Joiner(config.encoder.d_model, config.predictor.dim, config.joiner.dim, config.vocab_size)

    def encode(
        self, features: Float[Tensor, "batch frames mels"], lengths: Int[Tensor, " batch"], context: ChunkContext
    ) -> tuple[Float[Tensor, "batch encoder_frames d_model"], Int[Tensor, " batch"]]:
        """Encoder frames of whole utterances, from features as the filter bank gives them."""
        return self.encoder(self.normalisation(features, lengths), lengths, context)
