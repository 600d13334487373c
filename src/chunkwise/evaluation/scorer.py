"""Recognition of one batch in every context asked for, counted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from jaxtyping import Float, Int
from lhotse.cut import Cut
from torch import Tensor

from chunkwise.data.batches import Batch
from chunkwise.data.loading import speaker
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.evaluation.config import EvalConfig, EvalPath
from chunkwise.evaluation.recogniser import Recogniser, inference
from chunkwise.evaluation.streamed import add_delays, spoken_words, stream_batch
from chunkwise.evaluation.tally import Tally
from chunkwise.models.context import ChunkContext

LossFunction = Callable[
    [Float[Tensor, "batch frames mels"], Int[Tensor, " batch"], Batch, ChunkContext], Float[Tensor, " batch"]
]
"""The training loss of each utterance, from raw features, their lengths, the batch and the context."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """Recognises batches on the configured path; audio and features are read once for all contexts."""

    recogniser: Recogniser
    contexts: Sequence[ChunkContext]
    config: EvalConfig
    cuts: Mapping[str, Cut]
    loss: LossFunction | None

    def score(self, batch: Batch) -> list[Tally]:
        """The batch's counts, one tally per context."""
        match self.config.path:
            case EvalPath.masked:
                return self._masked(batch)
            case EvalPath.streaming:
                return [self._streamed(batch, context) for context in self.contexts]

    def _masked(self, batch: Batch) -> list[Tally]:
        start_s, tallies = perf_counter(), []
        features, lengths = self.recogniser.features(batch)
        features_s = perf_counter() - start_s
        for context in self.contexts:
            start_s = perf_counter()
            hypotheses = self.recogniser.search_features(features, lengths, context)
            tally = Tally(compute_us=round(1e6 * (features_s + perf_counter() - start_s)))
            self._count(tally, batch, hypotheses)
            if self.loss is not None:
                self._add_losses(tally, batch, features, lengths, context, self.loss)
            tallies.append(tally)
        return tallies

    def _streamed(self, batch: Batch, context: ChunkContext) -> Tally:
        tally, start_s = Tally(), perf_counter()
        hypotheses = stream_batch(self.recogniser, batch, context, self.config.piece_ms, tally.latency)
        tally.compute_us = round(1e6 * (perf_counter() - start_s))
        rate_hz = self.recogniser.fbank.config.sample_rate_hz
        for id, hypothesis, samples in zip(batch.ids, hypotheses, batch.lengths.tolist(), strict=True):
            words = spoken_words(self.cuts[id])
            add_delays(tally.latency, hypothesis, words, samples / rate_hz, self.recogniser, context)
        self._count(tally, batch, hypotheses)
        if self.loss is not None:
            self._add_losses(tally, batch, *self.recogniser.features(batch), context, self.loss)
        return tally

    def _count(self, tally: Tally, batch: Batch, hypotheses: Sequence[Hypothesis]) -> None:
        tally.samples = int(batch.lengths.sum())
        references = batch.tokens[torch.arange(batch.tokens.shape[1]) < batch.token_lengths.cpu()[:, None]]
        tally.add_tokens(references, [hypothesis.tokens for hypothesis in hypotheses])
        texts = [self.recogniser.text(hypothesis) for hypothesis in hypotheses]
        tally.add_texts(batch.ids, batch.texts, texts, [speaker(self.cuts[id]) for id in batch.ids])

    def _add_losses(
        self,
        tally: Tally,
        batch: Batch,
        features: Float[Tensor, "batch frames mels"],
        lengths: Int[Tensor, " batch"],
        context: ChunkContext,
        loss: LossFunction,
    ) -> None:
        silent = lengths == 0
        losses = torch.full(silent.shape, torch.inf)
        if not silent.all():
            with inference(self.recogniser.model, self.recogniser.fbank):
                losses = loss(features, lengths, batch, context).masked_fill(silent, torch.inf)
        tally.add_losses(losses.cpu(), batch.token_lengths.cpu())
