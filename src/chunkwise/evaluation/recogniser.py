"""What maps waveforms to text, whole utterances at a time: features, encoder, search, tokenizer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from chunkwise.audio.fbank import Fbank
from chunkwise.data.batches import Batch
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.decoding.search import Search, decode
from chunkwise.models.context import ChunkContext
from chunkwise.models.transducer import Transducer
from chunkwise.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Recogniser:
    """The trained parts on the path from waveform to text, bundled.

    The path is the masked one: a whole utterance at once, every frame seeing what `ChunkContext` allows. By the
    streaming law it gives the tokens of a stream under the same context.
    """

    model: Transducer
    fbank: Fbank
    tokenizer: Tokenizer
    search: Search

    def features(self, batch: Batch) -> tuple[Float[Tensor, "batch frames mels"], Int[Tensor, " batch"]]:
        """The batch's log-mel features and how many frames of each row are real."""
        with inference(self.model, self.fbank):
            return self.fbank(batch.waveforms, batch.lengths)

    def search_features(
        self, features: Float[Tensor, "batch frames mels"], lengths: Int[Tensor, " batch"], context: ChunkContext
    ) -> list[Hypothesis]:
        """One hypothesis per row; a row without a frame has the empty one."""
        hypotheses = [Hypothesis(tokens=[], frames=[], score=0.0) for _ in range(len(lengths))]
        audible = torch.nonzero(lengths > 0)[:, 0]
        if len(audible) == 0:
            return hypotheses
        with inference(self.model, self.fbank):
            encoded, encoded_lengths = self.model.encode(features[audible], lengths[audible], context)
            found = decode(self.search, encoded, encoded_lengths)
        for row, hypothesis in zip(audible.tolist(), found, strict=True):
            hypotheses[row] = hypothesis
        return hypotheses

    def recognise(self, batch: Batch, context: ChunkContext) -> list[Hypothesis]:
        """One hypothesis per utterance of the batch, in its order."""
        return self.search_features(*self.features(batch), context)

    def text(self, hypothesis: Hypothesis) -> str:
        """The hypothesis as words."""
        return self.tokenizer.decode(hypothesis.tokens)


@contextmanager
def inference(*modules: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every submodule's own mode comes back afterwards, also after an error.

    >>> layer = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5).eval())
    >>> with inference(layer):
    ...     layer[0].training, torch.is_grad_enabled()
    (False, False)
    >>> layer.training, layer[0].training, layer[1].training
    (True, True, False)
    """
    modes = [(part, part.training) for module in modules for part in module.modules()]
    try:
        for module in modules:
            module.eval()
        with torch.inference_mode():
            yield
    finally:
        for part, training in modes:
            part.training = training
