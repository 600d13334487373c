"""Evaluation of a recogniser over a set of utterances, on one rank or on all, with one result.

Utterances are dealt to ranks without padding, dropping or duplication: the longest first, each batch to the rank that
comes free, so that what is balanced is what decoding costs. Each rank counts errors as integers, the World adds them,
and only then is anything divided. So a result depends neither on the number of ranks nor on the batches. Validation
during training and `chunkwise-evaluate` both come through here.
"""

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from lhotse import CutSet
from lhotse.cut import Cut

from chunkwise.data.corpora.config import DataConfig
from chunkwise.data.loading import BadAudio, SpeechDataset, listed, load_batches
from chunkwise.data.samplers import evaluation_batches
from chunkwise.evaluation.config import EvalConfig, EvalKind
from chunkwise.evaluation.journal import Journal
from chunkwise.evaluation.recogniser import Recogniser
from chunkwise.evaluation.scorer import LossFunction, Scorer
from chunkwise.evaluation.tally import Evaluation, Tally
from chunkwise.models.context import ChunkContext
from chunkwise.typing import World


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
    return evaluate_contexts(recogniser, cuts, [context], config, world, loss)[0]


def evaluate_contexts(
    recogniser: Recogniser,
    cuts: CutSet,
    contexts: Sequence[ChunkContext],
    config: EvalConfig,
    world: World,
    loss: LossFunction | None = None,
    journal: Journal | None = None,
) -> list[Evaluation]:
    """As `evaluate`, in several contexts; what the journal holds is not decoded again."""
    by_id = {cut.id: cut for cut in listed(cuts)}
    ids = [cut.id for cut in listed(cuts)]
    _require_distinct(ids, config)
    _agree_on_cuts(ids, world)
    tallies, done = [Tally() for _ in contexts], set[str]()
    if journal is not None:
        tallies, done = journal.resume(by_id, len(contexts), world)
    failures = list[ValueError]()
    rate_hz = recogniser.fbank.config.sample_rate_hz
    dataset = SpeechDataset(recogniser.tokenizer, rate_hz, BadAudio.refuse)
    scorer = Scorer(recogniser, contexts, config, by_id, loss)
    try:
        dealt = _deal([cut for cut in listed(cuts) if cut.id not in done], config, world)
        for batch in load_batches(dataset, dealt):
            counted = scorer.score(batch.to(world.device))
            for tally, part in zip(tallies, counted, strict=True):
                tally.include(part)
            if journal is not None:
                journal.append(batch.ids, counted, world.rank)
    except ValueError as error:
        failures.append(error)
    world.sign("adding up the errors")
    _fail_together(failures, world)
    evaluations = [tally.merge(rate_hz, world) for tally in tallies]
    for evaluation in evaluations:
        scored = evaluation.counts.utterances
        assert scored == len(ids), f"{scored} of {len(ids)} utterances were scored"
    return evaluations


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


def _deal(cuts: Sequence[Cut], config: EvalConfig, world: World) -> Iterator[CutSet]:
    """The batches that this rank is to decode; of a sharded evaluation, each rank takes the next as it comes free."""
    batching = DataConfig(max_batch_s=config.max_batch_s, max_batch_utterances=config.max_batch_utterances)
    match config.kind:
        case EvalKind.sharded:
            batches = evaluation_batches(cuts, batching, world.size)
            numbers = world.deal(len(batches))
        case EvalKind.single:
            batches = evaluation_batches(cuts, batching)
            numbers = range(len(batches)) if world.is_main else ()
    for number in numbers:
        world.sign(f"decoding batch {number + 1} of {len(batches)}")
        yield batches[number]


def _fail_together(failures: list[ValueError], world: World) -> None:
    """Raise the same sentence on every rank where one has failed, so that none waits for it."""
    count = int(world.sum_counts(torch.tensor([len(failures)], dtype=torch.int64, device=world.device)))
    if count:
        told = world.gather_texts([str(failure) for failure in failures])
        message = world.share_text("; ".join(told or []))
        raise ValueError(message) from (failures[0] if failures else None)
