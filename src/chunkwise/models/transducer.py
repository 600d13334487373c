"""The Conformer-Transducer: everything between features and scores."""

from dataclasses import dataclass, field

from jaxtyping import Float, Int
from torch import Tensor, nn

from chunkwise.models.conformer import ConformerEncoder, EncoderConfig
from chunkwise.models.context import ChunkContext
from chunkwise.models.joiner import Joiner, JoinerConfig
from chunkwise.models.normalisation import FeatureNormalisation, NormalisationConfig
from chunkwise.models.predictor import PredictorConfig, build_predictor


@dataclass(frozen=True, slots=True, kw_only=True)
class TransducerConfig:
    """The parts' shapes, and what ties them to features and tokenizer."""

    normalisation: NormalisationConfig = field(default_factory=NormalisationConfig)
    encoder: EncoderConfig
    predictor: PredictorConfig
    joiner: JoinerConfig
    num_mels: int
    vocab_size: int  # blank included


class Transducer(nn.Module):
    """Normalisation, encoder, predictor and joiner."""

    frames_per_encoder_frame = ConformerEncoder.stride

    def __init__(self, config: TransducerConfig) -> None:
        super().__init__()
        self.config = config
        self.normalisation = FeatureNormalisation(config.num_mels, config.normalisation)
        self.encoder = ConformerEncoder(config.encoder, config.num_mels)
        self.predictor = build_predictor(config.predictor, config.vocab_size)
        self.joiner = Joiner(config.encoder.d_model, config.predictor.dim, config.joiner.dim, config.vocab_size)

    def encode(
        self, features: Float[Tensor, "batch frames mels"], lengths: Int[Tensor, " batch"], context: ChunkContext
    ) -> tuple[Float[Tensor, "batch encoder_frames d_model"], Int[Tensor, " batch"]]:
        """Encoder frames of whole utterances, from features as the filter bank gives them."""
        return self.encoder(self.normalisation(features, lengths), lengths, context)
