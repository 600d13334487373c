"""Which utterances form which batch: for training an endless stream with a place, for evaluation an exact split."""

import hashlib
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, islice

import torch
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.dataset import DynamicBucketingSampler
from lhotse.dataset.sampling.dynamic_bucketing import FixedBucketBatchSizeConstraint
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from chunkwise.audio.fbank import Fbank
from chunkwise.data.batches import Batch
from chunkwise.data.corpora.config import DataConfig
from chunkwise.data.loading import SpeechDataset, listed, transcript
from chunkwise.data.skips import Skip
from chunkwise.text.tokenizer import Tokenizer
from chunkwise.typing import Seconds

FULL_BATCHES = 4
"""How many full batches a bucket should hold at least."""


def trainable(
    cuts: CutSet | Iterable[Cut],
    tokenizer: Tokenizer,
    fbank: Fbank,
    encoder_frames: Callable[[Tensor], Tensor],
    fastest: float = 1.0,
) -> tuple[CutSet, list[Skip]]:
    """The cuts that a transducer and CTC can learn, and those that they cannot, with the numbers.

    Each token needs an encoder frame, and CTC one more between two equal tokens; `encoder_frames` maps feature frames
    to them. `fastest` is the largest speed factor that training may apply.
    """
    cuts = listed(cuts)
    tokens = [tokenizer.encode(transcript(cut)) for cut in cuts]
    rate_hz = fbank.config.sample_rate_hz
    samples = torch.tensor([int(cut.duration * rate_hz / fastest) for cut in cuts], dtype=torch.int64)
    available = encoder_frames(fbank.num_frames(samples)).tolist()
    kept: list[Cut] = []
    skipped: list[Skip] = []
    for cut, ids, frames in zip(cuts, tokens, available, strict=True):
        needed = len(ids) + sum(1 for _, run in groupby(ids) for _ in islice(run, 1, None))
        if frames >= max(1, needed):
            kept.append(cut)
        else:
            reason = f"{cut.duration:.3f} s give {frames} encoder frames, its {len(ids)} tokens need {max(1, needed)}"
            skipped.append(Skip(cut.id, reason))
    return CutSet.from_cuts(kept), skipped


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the endless stream of training batches; a batch beyond its epoch's end lies in the next one."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBatches:
    """The endless stream of training batches: one epoch after the other, each in an order of its own.

    What comes at a position depends on the seed only, not on the number of processes or workers.
    """

    cuts: Sequence[Cut]
    config: DataConfig
    seed: int
    speed_factors: Sequence[float] = (1.0,)
    perturbed_from: int = 0  # the first epoch with speed factors

    def __post_init__(self) -> None:
        if not len(self.cuts):
            raise ValueError(f"data.corpus={self.config.corpus} has no utterance to train on; check data.root")

    def epoch(self, epoch: int) -> list[CutSet]:
        """The batches of one epoch: each utterance once, at most `max_batch_s` padded seconds or one utterance."""
        order = random.Random(self.draw(f"{epoch}"))
        cuts = [self._perturbed(cut, epoch) for cut in self.cuts]
        order.shuffle(cuts)
        batches = bucketed(cuts, self.config, order.getrandbits(32))
        order.shuffle(batches)
        return batches

    def after(self, start: Position) -> Iterator[tuple[Position, CutSet]]:
        """The batches from `start` on, each with its own position."""
        epoch, skip = start.epoch, start.batch
        while True:
            batches = self.epoch(epoch)
            for index in range(skip, len(batches)):
                yield Position(epoch, index), batches[index]
            epoch, skip = epoch + 1, max(0, skip - len(batches))

    def draw(self, name: str) -> int:
        """A number that depends on the seed and this name alone."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{name}".encode()).digest()[:6])

    def _perturbed(self, cut: Cut, epoch: int) -> Cut:
        if epoch < self.perturbed_from:
            return cut
        factor = self.speed_factors[self.draw(f"{epoch}/{cut.id}") % len(self.speed_factors)]
        return cut if factor == 1 else cut.perturb_speed(factor, affix_id=False)


def bucketed(cuts: Sequence[Cut], config: DataConfig, seed: int) -> list[CutSet]:
    """Each cut once, in batches of similar durations.

    A bucket holds as many cuts of its longest duration as fit, so padding can never exceed the limit.
    """
    durations = [cut.duration for cut in cuts]
    # A bucket's last batch is seldom full, so a small corpus gets fewer buckets.
    num_buckets = min(config.num_buckets, max(1, int(sum(durations) / (FULL_BATCHES * config.max_batch_s))))
    uppers = _bucket_uppers(durations, num_buckets)
    fits = [min(int(config.max_batch_s / upper), config.max_batch_utterances) for upper in uppers]
    sampler = DynamicBucketingSampler(
        list(cuts),
        constraint=FixedBucketBatchSizeConstraint(uppers, [max(1, count) for count in fits]),
        duration_bins=uppers[:-1],
        shuffle=True,
        seed=seed,
        # Every process walks the whole stream and takes its share of it, see `train_loader`.
        world_size=1,
        rank=0,
    )
    return list(sampler)


def _bucket_uppers(durations: Sequence[Seconds], num_buckets: int) -> list[Seconds]:
    """The longest duration of each bucket, where all buckets hold about as much audio."""
    ordered = sorted(durations)
    share = sum(ordered) / num_buckets
    last_of = {math.ceil(total / share): duration for duration, total in zip(ordered, accumulate(ordered), strict=True)}
    return sorted({*last_of.values(), ordered[-1]})


def train_loader(
    batches: TrainBatches, dataset: SpeechDataset, start: Position, rank: int, world_size: int
) -> Iterator[tuple[Position, Batch]]:
    """This rank's share of the stream, read ahead by `data.num_workers` processes.

    Each batch comes with the position at which training continues after it: the next group of `world_size` batches.
    Rank `r` takes the `r`-th of each group, so that two processes see what one sees in twice as many batches.
    """
    share = islice(batches.after(start), rank, None, world_size)
    items = ((Position(at.epoch, at.batch - rank + world_size), cuts) for at, cuts in share)
    yield from DataLoader(
        _Placed(dataset),
        batch_size=None,
        sampler=items,
        num_workers=batches.config.num_workers,
        generator=torch.Generator(),
    )


class _Placed(Dataset[tuple[Position, Batch]]):
    """A dataset whose batches keep their position on the way through the workers."""

    def __init__(self, dataset: SpeechDataset) -> None:
        self.dataset = dataset

    def __getitem__(self, item: tuple[Position, CutSet]) -> tuple[Position, Batch]:
        position, cuts = item
        return position, self.dataset[cuts]


def evaluation_batches(cuts: CutSet | Iterable[Cut], config: DataConfig, ranks: int = 1) -> list[CutSet]:
    """The batches of an evaluation, the longest utterances first: each cut once, nothing added, nothing dropped.

    For several ranks, which take them as they come free, they shrink towards the end, so that all end together: none
    has more than a quarter of what a rank's share of the rest is.
    """
    ordered = sorted(listed(cuts), key=lambda cut: (-cut.duration, cut.id))
    rest_s = sum(cut.duration for cut in ordered)
    batches, limit_s = list[list[Cut]](), 0.0
    for cut in ordered:  # the first cut of a batch is its longest
        fits = batches and (len(batches[-1]) + 1) * batches[-1][0].duration <= limit_s
        if fits and len(batches[-1]) < config.max_batch_utterances:
            batches[-1].append(cut)
        else:
            limit_s = config.max_batch_s if ranks == 1 else min(config.max_batch_s, rest_s / (4 * ranks))
            batches.append([cut])
        rest_s -= cut.duration
    return [CutSet.from_cuts(batch) for batch in batches]
