"""What is heard in an utterance does not depend on the utterances that it is decoded with, nor on their order."""

import hashlib
import json
import random
from collections.abc import Iterator, Sequence

import pytest
import torch
from lhotse import CutSet
from lhotse.cut import Cut

from chunkwise.data.batches import Batch
from chunkwise.data.corpora.config import Corpus, DataConfig
from chunkwise.data.corpora.prepare import prepare_corpus
from chunkwise.data.loading import BadAudio, SpeechDataset, listed
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.evaluation.recogniser import Recogniser, inference
from chunkwise.evaluation.streamed import stream_batch
from chunkwise.models.context import FULL, ChunkContext
from chunkwise.streaming.latency import Latency
from chunkwise.typing import BLANK

UTTERANCES, STREAMS = 33, 5
BATCH_SIZES = (4, 32)
"""Beside one at a time, where the order cannot matter."""
STREAMING = ChunkContext(8, 2)


@pytest.fixture(params=[Corpus.digits, Corpus.fsdd])
def cuts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Cut]:
    """Test utterances of the embedded digits, and of real recordings of digits."""
    corpus: Corpus = request.param
    root = None if corpus is Corpus.digits else str(request.getfixturevalue("shared_data") / corpus)
    data = DataConfig(
        corpus=corpus, root=root, train_utterances=1, dev_utterances=1, test_utterances=UTTERANCES,
        prepared_dir=str(tmp_path_factory.getbasetemp() / f"composition_{corpus}"),
    )  # fmt: skip
    return listed(prepare_corpus(data).splits["test"])


@pytest.fixture
def talkative(recogniser: Recogniser, cuts: list[Cut]) -> Recogniser:
    """The recogniser with a joiner that hears what differs between frames, so that it emits many different tokens."""
    (batch,) = batches(recogniser, cuts, len(cuts))
    joiner = recogniser.model.joiner
    with inference(recogniser.model, recogniser.fbank):
        encoded, lengths = recogniser.model.encode(*recogniser.features(batch), FULL)
        frames = torch.cat([row[:length] for row, length in zip(encoded, lengths.tolist(), strict=True)])
        deviation, mean = torch.std_mean(frames, dim=0)
        weight = joiner.project_encoder.weight / deviation
        joiner.project_encoder.weight.copy_(weight)
        joiner.project_encoder.bias.copy_(-weight @ mean)
        joiner.project_predictor.weight.mul_(4.0)
        joiner.output.weight.mul_(8.0)
        joiner.output.bias[BLANK] += 4.5
    return recogniser


def orders(cuts: Sequence[Cut]) -> Iterator[list[Cut]]:
    """The cuts by duration and shuffled."""
    yield sorted(cuts, key=lambda cut: cut.duration)
    yield random.Random(0).sample(cuts, len(cuts))


def batches(recogniser: Recogniser, cuts: Sequence[Cut], size: int) -> Iterator[Batch]:
    """The cuts in their order, so many at a time."""
    dataset = SpeechDataset(recogniser.tokenizer, recogniser.fbank.config.sample_rate_hz, BadAudio.refuse)
    for start in range(0, len(cuts), size):
        yield dataset[CutSet.from_cuts(cuts[start : start + size])]


def masked(recogniser: Recogniser, cuts: Sequence[Cut], size: int, context: ChunkContext) -> dict[str, Hypothesis]:
    """The hypotheses of whole utterances, by id."""
    return {
        id: hypothesis
        for batch in batches(recogniser, cuts, size)
        for id, hypothesis in zip(batch.ids, recogniser.recognise(batch, context), strict=True)
    }


def streamed(recogniser: Recogniser, cuts: Sequence[Cut], size: int) -> dict[str, Hypothesis]:
    """The hypotheses of streams in 130 ms pieces, by id."""
    return {
        id: hypothesis
        for batch in batches(recogniser, cuts, size)
        for id, hypothesis in zip(batch.ids, stream_batch(recogniser, batch, STREAMING, 130.0, Latency()), strict=True)
    }


def digest(heard: dict[str, Hypothesis]) -> str:
    """SHA-256 of all tokens, sorted by utterance."""
    tokens = [[id, hypothesis.tokens] for id, hypothesis in sorted(heard.items())]
    return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()


@pytest.mark.parametrize("context", [STREAMING, FULL], ids=lambda context: context.label)
def test_every_batch_composition_gives_one_hash(talkative: Recogniser, cuts: list[Cut], context: ChunkContext) -> None:
    """NVIDIA-NeMo/Speech#12840, on recordings."""
    found = [masked(talkative, cuts, 1, context)]
    found += [masked(talkative, order, size, context) for order in orders(cuts) for size in BATCH_SIZES]
    assert {digest(heard) for heard in found} == {digest(found[0])}
    assert all(heard.keys() == {cut.id for cut in cuts} for heard in found)
    tokens = [tuple(hypothesis.tokens) for hypothesis in found[0].values()]
    assert sum(map(bool, tokens)) > 0.8 * UTTERANCES
    assert len(set(tokens)) > 0.6 * UTTERANCES
    assert len({token for row in tokens for token in row}) > 8


def test_streams_in_any_company_give_the_hash_of_the_masked_pass(talkative: Recogniser, cuts: list[Cut]) -> None:
    some = cuts[:STREAMS]
    wanted = digest(masked(talkative, some, STREAMS, STREAMING))
    found = {digest(streamed(talkative, order, size)) for order in orders(some) for size in (1, 3)}
    assert found == {wanted}
