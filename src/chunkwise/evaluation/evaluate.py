"""Evaluation of a recogniser over a set of utterances, on one rank or on all, with one result.

Utterances are dealt to ranks without padding, dropping or duplication; each rank counts errors as integers, the
World adds them, and only then is anything divided. So a result depends neither on the number of ranks nor on the
batches. Validation during training and `chunkwise-evaluate` both come through here.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from time import perf_counter

import torch
from jaxtyping import Float, Int
from lhotse import CutSet
from lhotse.cut import Cut
from torch import Tensor

from chunkwise.data.batches import Batch
from chunkwise.data.corpora.config import DataConfig
from chunkwise.data.loading import BadAudio, SpeechDataset, listed, load_batches, speaker
from chunkwise.data.samplers import evaluation_batches
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.evaluation.recogniser import Recogniser, inference
from chunkwise.evaluation.streamed import add_delays, spoken_words, stream_batch
from chunkwise.evaluation.tally import Evaluation, Tally
from chunkwise.models.context import ChunkContext
from chunkwise.typing import World


class EvalKind(StrEnum):
    """How evaluation is spread over ranks."""

    single = "single"
    sharded = "sharded"


class EvalPath(StrEnum):
    """How utterances are recognised; under the same context, both give the same words."""

    masked = "masked"  # as a whole, every frame seeing what the context allows
    streaming = "streaming"  # through sessions, piece by piece


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """Where evaluation runs, on which path and in which batches; none of it changes a result."""

    kind: EvalKind = EvalKind.sharded
    path: EvalPath = EvalPath.masked
    piece_ms: float = 100.0  # streaming: how much audio arrives at a time
    split: str = "test"
    max_batch_s: float = 120.0  # padded seconds of audio in a batch
    max_batch_utterances: int = 64  # streaming: sessions at a time

    def __post_init__(self) -> None:
        """Refuse batches that can hold nothing."""
        if not self.piece_ms > 0:
            raise ValueError(f"eval.piece_ms={self.piece_ms} must be more than 0; try 100")
        if not self.max_batch_s > 0:
            raise ValueError(f"eval.max_batch_s={self.max_batch_s} must be more than 0; try 120")
        if self.max_batch_utterances < 1:
            raise ValueError(f"eval.max_batch_utterances={self.max_batch_utterances} must be 1 or more; try 64")
        if not self.split:
            raise ValueError("eval.split='' must name a split of the corpus; try test")


LossFunction = Callable[
    [Float[Tensor, "batch frames mels"], Int[Tensor, " batch"], Batch, ChunkContext], Float[Tensor, " batch"]
]
"""The training loss of each utterance, from raw features, their lengths, the batch and the context."""


def evaluate(
    recogniser: Recogniser,
    cuts: CutSet,
    context: ChunkContext,
    config: EvalConfig,
    world: World,
    loss: LossFunction | None = None,
) -> Evaluation:
    """Recognise and score every cut exactly once; every rank calls this with the same cuts.

    Utterances without a single feature frame are scored with the empty hypothesis; other audio that cannot be used
    is an error on every rank. Model and features run in evaluation mode and come back in the mode they were in.
    """
    by_id = {cut.id: cut for cut in listed(cuts)}
    ids = [cut.id for cut in listed(cuts)]
    _require_distinct(ids, config)
    _agree_on_cuts(ids, world)
    tally, failures = Tally(), list[ValueError]()
    rate_hz = recogniser.fbank.config.sample_rate_hz
    dataset = SpeechDataset(recogniser.tokenizer, rate_hz, BadAudio.refuse)
    scorer = _Scorer(recogniser, context, config, by_id, loss, tally)
    try:
        for batch in load_batches(dataset, _deal(cuts, config, world)):
            scorer.add(batch.to(world.device))
    except ValueError as error:
        failures.append(error)
    _fail_together(failures, world)
    evaluation = tally.merge(rate_hz, world)
    assert evaluation.counts.utterances == len(ids), f"{evaluation.counts.utterances} of {len(ids)} were scored"
    return evaluation


def _require_distinct(ids: list[str], config: EvalConfig) -> None:
    """Refuse a set without an utterance, or with two under one id; all ranks see the same."""
    if not ids:
        raise ValueError(f"eval.split={config.split} holds no utterance, so no error rate exists; choose another split")
    id, times = Counter(ids).most_common(1)[0]
    if times > 1:
        raise ValueError(f"eval.split={config.split} holds the utterance id {id} {times} times; make its ids unique")


def _agree_on_cuts(ids: list[str], world: World) -> None:
    """Refuse, on all ranks alike, to evaluate when they were given different cuts."""
    checksum = zlib.crc32("\n".join(sorted(ids)).encode()) & 0xFFFFFF
    moments = torch.tensor([checksum, checksum**2], dtype=torch.int64, device=world.device)
    total, squares = world.sum_counts(moments).tolist()
    if total**2 != world.size * squares:  # Cauchy-Schwarz: equal only if all checksums are
        raise ValueError("the ranks were given different utterances to evaluate; give every rank the same cuts")


def _deal(cuts: CutSet, config: EvalConfig, world: World) -> list[CutSet]:
    """This rank's batches."""
    match config.kind:
        case EvalKind.sharded:
            rank, size = world.rank, world.size
        case EvalKind.single if world.is_main:
            rank, size = 0, 1
        case EvalKind.single:
            return []
    batching = DataConfig(max_batch_s=config.max_batch_s, max_batch_utterances=config.max_batch_utterances)
    return evaluation_batches(cuts, batching, rank, size)


def _fail_together(failures: list[ValueError], world: World) -> None:
    """Raise the same sentence on every rank where one has failed, so that none waits for it."""
    count = int(world.sum_counts(torch.tensor([len(failures)], dtype=torch.int64, device=world.device)))
    if count:
        told = world.gather_texts([str(failure) for failure in failures])
        message = world.share_text("; ".join(told or []))
        raise ValueError(message) from (failures[0] if failures else None)


@dataclass(frozen=True, slots=True)
class _Scorer:
    """Recognises batches on the configured path and adds them to the tally."""

    recogniser: Recogniser
    context: ChunkContext
    config: EvalConfig
    cuts: Mapping[str, Cut]
    loss: LossFunction | None
    tally: Tally

    def add(self, batch: Batch) -> None:
        """Recognise and count one batch."""
        start_s = perf_counter()
        match self.config.path:
            case EvalPath.masked:
                hypotheses = self.recogniser.recognise(batch, self.context)
            case EvalPath.streaming:
                hypotheses = self._stream(batch)
        self.tally.compute_us += round(1e6 * (perf_counter() - start_s))
        self.tally.samples += int(batch.lengths.sum())
        texts = [self.recogniser.text(hypothesis) for hypothesis in hypotheses]
        self.tally.add_texts(batch.ids, batch.texts, texts, [speaker(self.cuts[id]) for id in batch.ids])
        if self.loss is not None:
            self._add_losses(batch, self.loss)

    def _stream(self, batch: Batch) -> list[Hypothesis]:
        latency = self.tally.latency
        hypotheses = stream_batch(self.recogniser, batch, self.context, self.config.piece_ms, latency)
        rate_hz = self.recogniser.fbank.config.sample_rate_hz
        for id, hypothesis, samples in zip(batch.ids, hypotheses, batch.lengths.tolist(), strict=True):
            words = spoken_words(self.cuts[id])
            add_delays(latency, hypothesis, words, samples / rate_hz, self.recogniser, self.context)
        return hypotheses

    def _add_losses(self, batch: Batch, loss: LossFunction) -> None:
        features, lengths = self.recogniser.features(batch)
        silent = lengths == 0
        losses = torch.full(silent.shape, torch.inf)
        if not silent.all():
            with inference(self.recogniser.model, self.recogniser.fbank):
                losses = loss(features, lengths, batch, self.context).masked_fill(silent, torch.inf)
        self.tally.add_losses(losses.cpu(), batch.token_lengths.cpu())
