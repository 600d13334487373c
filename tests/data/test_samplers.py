"""Training sees an endless stream with a place; evaluation sees each utterance exactly once."""

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from lhotse import AudioSource, CutSet, Recording, SupervisionSegment
from lhotse.cut import Cut

from chunkwise.audio.fbank import Fbank, FbankConfig
from chunkwise.data.batches import Batch, Utterance, collate
from chunkwise.data.corpora.config import DataConfig
from chunkwise.data.loading import BadAudio, SpeechDataset, listed
from chunkwise.data.samplers import Position, TrainBatches, evaluation_batches, train_loader, trainable
from chunkwise.text.tokenizer import Tokenizer, TokenizerConfig, TokenizerKind, train_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    config = TokenizerConfig(kind=TokenizerKind.char, vocab_size=None)
    return train_tokenizer(["abcd"], config, tmp_path_factory.mktemp("text") / "tokenizer.model")


def cut_of(name: str, duration: float, text: str = "abcd") -> Cut:
    samples = round(duration * 16_000)
    source = AudioSource(type="file", channels=[0], source=f"{name}.wav")
    recording = Recording(name, [source], 16_000, samples, samples / 16_000)
    cut = recording.to_cut()
    cut.id = name
    cut.supervisions = [SupervisionSegment(name, name, 0.0, duration, text=text)]
    return cut


def corpus(count: int) -> list[Cut]:
    return [cut_of(f"u{index:03}", 1 + (index * 7 % 40) / 10) for index in range(count)]


def stream_of(
    count: int = 103, seed: int = 7, num_workers: int = 0, speeds: tuple[float, ...] = (1.0,)
) -> TrainBatches:
    config = DataConfig(max_batch_s=20, num_buckets=4, num_workers=num_workers)
    return TrainBatches(cuts=corpus(count), config=config, seed=seed, speed_factors=speeds)


class Names(SpeechDataset):
    """A dataset that reads no file: the batches' ids are all that counts here."""

    def __getitem__(self, cuts: CutSet) -> Batch:
        return collate([Utterance(cut.id, "", torch.zeros(1), []) for cut in listed(cuts)])


def ids(batch: CutSet) -> list[str]:
    return [cut.id for cut in listed(batch)]


def test_each_epoch_has_every_utterance_once_in_its_own_order() -> None:
    # pytorch/pytorch#31771: every epoch in the same order
    epochs = [[ids(batch) for batch in stream_of().epoch(epoch)] for epoch in range(3)]
    for batches in epochs:
        assert Counter(name for batch in batches for name in batch) == Counter(cut.id for cut in corpus(103))
    assert len({str(batches) for batches in epochs}) == 3
    assert epochs == [[ids(batch) for batch in stream_of().epoch(epoch)] for epoch in range(3)]
    assert epochs[0] != [ids(batch) for batch in stream_of(seed=8).epoch(0)]
    assert epochs[1] != [ids(batch) for batch in stream_of(seed=8).epoch(0)]  # seeds and epochs do not add up


@pytest.mark.parametrize("durations", [[1, 1, 1, 1, 1, 20], [100], [100, 100, 100], [1] * 60, [0.3, 50, 49.9, 0.1]])
def test_padded_seconds_keep_their_limit(durations: list[float]) -> None:
    # lhotse-speech/lhotse#640: the limit counted raw seconds, and a long utterance joined many short ones
    cuts = [cut_of(f"u{index}", duration) for index, duration in enumerate(durations)]
    config = DataConfig(max_batch_s=50, num_buckets=2, max_batch_utterances=20)
    for batches in (
        TrainBatches(cuts=cuts, config=config, seed=1).epoch(0),
        evaluation_batches(cuts, config),
    ):
        assert sorted(name for batch in batches for name in ids(batch)) == sorted(cut.id for cut in cuts)
        for batch in batches:
            members = listed(batch)
            assert len(members) == 1 or len(members) * max(cut.duration for cut in members) <= 50
            assert len(members) <= 20


def test_batches_are_filled_with_like_durations() -> None:
    batches = TrainBatches(cuts=corpus(2000), config=DataConfig(max_batch_s=60), seed=1).epoch(0)
    padded = sum(len(batch) * max(cut.duration for cut in listed(batch)) for batch in batches)
    audio = sum(cut.duration for cut in corpus(2000))
    assert audio / padded > 0.95
    assert len(batches) < 1.25 * audio / 60


def test_no_utterance_is_an_error() -> None:
    with pytest.raises(ValueError, match="data.corpus=digits has no utterance to train on"):
        TrainBatches(cuts=[], config=DataConfig(), seed=1)


def test_speed_is_drawn_per_utterance_and_epoch_before_batching() -> None:
    # huggingface/transformers#37932: the same noise in every epoch
    stream = stream_of(speeds=(0.5, 1.0, 2.0))
    ratios = []
    for epoch in (0, 1, 0):
        cuts = [cut for batch in stream.epoch(epoch) for cut in listed(batch)]
        before = {cut.id: cut.duration for cut in stream.cuts}
        ratios.append({cut.id: round(before[cut.id] / cut.duration, 2) for cut in cuts})
        for batch in stream.epoch(epoch):
            assert len(batch) == 1 or len(batch) * max(cut.duration for cut in listed(batch)) <= 20
    counts = Counter(ratios[0].values())
    assert set(counts) == {0.5, 1.0, 2.0}
    assert min(counts.values()) > 20
    assert ratios[0] == ratios[2] != ratios[1]


def test_speed_begins_with_its_epoch() -> None:
    stream = replace(stream_of(speeds=(0.5, 2.0)), perturbed_from=1)
    before = {cut.id: cut.duration for cut in stream.cuts}
    for epoch, untouched in ((0, len(before)), (1, 0)):
        cuts = [cut for batch in stream.epoch(epoch) for cut in listed(batch)]
        assert sum(cut.duration == before[cut.id] for cut in cuts) == untouched


@pytest.mark.parametrize("num_workers", [0, 2])
def test_training_continues_at_any_position(tokenizer: Tokenizer, num_workers: int) -> None:
    # huggingface/accelerate#4071; Lightning-AI/pytorch-lightning#21941
    dataset, stream = Names(tokenizer, 16_000, BadAudio.skip), stream_of(num_workers=num_workers)
    per_epoch = len(stream.epoch(0))
    expected = [ids(batch) for epoch in range(3) for batch in stream.epoch(epoch)]
    length = len(expected) - 2
    steps = list(islice(train_loader(stream, dataset, Position(), 0, 1), length))
    assert [batch.ids for _, batch in steps] == expected[:length]
    for done in (1, per_epoch - 1, per_epoch, per_epoch + 7):
        resumed = islice(train_loader(stream, dataset, steps[done - 1][0], 0, 1), length - done)
        assert [batch.ids for _, batch in resumed] == expected[done:length]


def test_ranks_share_the_stream_of_one_process(tokenizer: Tokenizer) -> None:
    # NVlabs/LongLive#71: ranks with orders of their own
    dataset, stream = Names(tokenizer, 16_000, BadAudio.skip), stream_of()
    single = [batch.ids for _, batch in islice(train_loader(stream, dataset, Position(), 0, 1), 60)]
    for size in (2, 3, 4):
        ranks = [
            list(islice(train_loader(stream, dataset, Position(), rank, size), 60 // size)) for rank in range(size)
        ]
        joined = [batch.ids for group in zip(*ranks, strict=True) for _, batch in group]
        assert joined == single
        # Wherever a rank stops, any number of processes continues at the same place.
        for rank in range(size):
            position = ranks[rank][4][0]
            resumed = islice(train_loader(stream, dataset, position, 0, 1), 3)
            assert [batch.ids for _, batch in resumed] == single[5 * size : 5 * size + 3]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("count", [0, 1, 7, 103])
def test_evaluation_batches_each_utterance_once_the_longest_first(ranks: int, count: int) -> None:
    # pytorch/pytorch#25162: the standard sampler repeats utterances
    batches = [listed(batch) for batch in evaluation_batches(corpus(count), DataConfig(max_batch_s=20), ranks)]
    dealt = [cut for batch in batches for cut in batch]
    assert sorted(cut.id for cut in dealt) == sorted(cut.id for cut in corpus(count))
    assert [cut.duration for cut in dealt] == sorted((cut.duration for cut in dealt), reverse=True)
    assert all(len(batch) == 1 or len(batch) * batch[0].duration <= 20 for batch in batches)


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_ranks_of_unequal_speed_end_evaluation_together(ranks: int) -> None:
    durations = np.random.default_rng(0).gamma(4.0, 2.0, 2000)
    cuts = [cut_of(f"u{index:04}", 0.3 + seconds) for index, seconds in enumerate(durations)]
    batches = evaluation_batches(cuts, DataConfig(max_batch_s=120), ranks)
    lengths_s = [sum(cut.duration for cut in listed(batch)) for batch in batches]
    speeds = np.linspace(1.0, 2.0, ranks)  # the last is twice as fast as the first
    busy_until = np.zeros(ranks)
    for seconds in lengths_s:
        free = int(busy_until.argmin())
        busy_until[free] += seconds / speeds[free]
    ideal = sum(lengths_s) / speeds.sum()
    assert busy_until.max() < 1.01 * ideal + 1.0


def test_what_cannot_be_trained_is_named_with_numbers(tokenizer: Tokenizer) -> None:
    def encoder_frames(frames: torch.Tensor) -> torch.Tensor:
        return (frames + 3) // 4

    cuts = [
        cut_of("fits", 0.2, "abcd"),  # 5 encoder frames, 5 tokens with the leading space
        cut_of("repeats", 0.2, "aaab"),  # two more to keep equal tokens apart
        cut_of("long", 0.2, "abcdabcd"),
        cut_of("silent", 0.001, ""),
        cut_of("wordless", 0.2, ""),
    ]
    kept, skipped = trainable(cuts, tokenizer, Fbank(FbankConfig()), encoder_frames)
    assert ids(kept) == ["fits", "wordless"]
    assert {skip.id: skip.reason for skip in skipped} == {
        "repeats": "0.200 s give 5 encoder frames, its 5 tokens need 7",
        "long": "0.200 s give 5 encoder frames, its 9 tokens need 9",
        "silent": "0.001 s give 0 encoder frames, its 0 tokens need 1",
    }
    faster, _ = trainable(cuts, tokenizer, Fbank(FbankConfig()), encoder_frames, fastest=1.4)
    assert ids(faster) == ["wordless"]


def test_the_tokenizer_is_read_once_per_worker(tokenizer: Tokenizer, tmp_path: Path) -> None:
    # What a worker receives per item is a batch of manifest entries, not the corpus.
    stream = stream_of(num_workers=1)
    (position, batch), *_ = islice(train_loader(stream, Names(tokenizer, 16_000, BadAudio.skip), Position(), 0, 1), 1)
    assert position == Position(0, 1)
    assert batch.ids == ids(stream.epoch(0)[0])
