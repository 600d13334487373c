"""The streaming path says what the masked one says, for every cut, batch and context, and counts how late it was."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from lhotse import CutSet, MonoCut
from lhotse.supervision import AlignmentItem

from chunkwise.data.corpora.config import Corpus, DataConfig
from chunkwise.data.corpora.prepare import prepare_corpus
from chunkwise.data.loading import listed
from chunkwise.evaluation.config import EvalConfig, EvalPath
from chunkwise.evaluation.evaluate import evaluate
from chunkwise.evaluation.recogniser import Recogniser
from chunkwise.evaluation.results import write_evaluation
from chunkwise.evaluation.streamed import (
    SpokenWord,
    completing_tokens,
    describe_streams,
    recognised,
    show_latency,
    spoken_words,
)
from chunkwise.evaluation.tally import Evaluation
from chunkwise.models.context import ChunkContext
from chunkwise.training.distributed import World
from chunkwise.typing import World as AnyWorld

ALONE = World(0, 1, torch.device("cpu"))
CONTEXTS = [ChunkContext(chunk, left) for chunk, left in itertools.product((4, 8, 16, 32), (1, 2, 4, None))]
MakeCuts = Callable[[list[int], list[str]], CutSet]
RunRanks = Callable[[int, Callable[[AnyWorld], object]], list[object]]


def chatty(recogniser: Recogniser) -> Recogniser:
    """The recogniser with scores so far apart that it emits plenty of tokens."""
    with torch.no_grad():
        recogniser.model.joiner.output.weight.mul_(8.0)
    return recogniser


def both_paths(recogniser: Recogniser, cuts: CutSet, context: ChunkContext, piece_ms: float = 130.0) -> Evaluation:
    """The streaming evaluation, after a look that it is the masked one."""
    masked = evaluate(recogniser, cuts, context, EvalConfig(), ALONE)
    config = EvalConfig(path=EvalPath.streaming, piece_ms=piece_ms)
    streamed = evaluate(recogniser, cuts, context, config, ALONE)
    assert masked.utterances == streamed.utterances
    assert masked.counts == streamed.counts
    return streamed


@pytest.mark.parametrize("context", [*CONTEXTS, ChunkContext(1, 0), ChunkContext()], ids=lambda c: c.label)
def test_streams_of_the_embedded_digits_say_what_the_masked_pass_says(
    recogniser: Recogniser, context: ChunkContext, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = DataConfig(
        prepared_dir=str(tmp_path_factory.getbasetemp() / "streamed"), train_utterances=1, dev_utterances=1,
        test_utterances=5,
    )  # fmt: skip
    cuts = prepare_corpus(data).splits["test"]
    streamed = both_paths(chatty(recogniser), cuts, context)
    assert streamed.utterances is not None
    assert sum(len(row.hypothesis) for row in streamed.utterances) > 20
    assert streamed.latency is not None
    assert streamed.latency.first_token.counts.total() == 5


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda c: c.label)
def test_streams_of_real_recordings_say_what_the_masked_pass_says(
    recogniser: Recogniser, context: ChunkContext, shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = DataConfig(
        corpus=Corpus.fsdd, root=str(shared_data / "fsdd"), train_utterances=1, dev_utterances=1, test_utterances=6,
        prepared_dir=str(tmp_path_factory.getbasetemp() / "streamed_fsdd"),
    )  # fmt: skip
    streamed = both_paths(chatty(recogniser), prepare_corpus(data).splits["test"], context)
    assert streamed.utterances is not None
    assert sum(len(row.hypothesis) for row in streamed.utterances) > 20


@pytest.mark.parametrize("piece_ms", [33.0, 10_000.0])
def test_batch_order_and_pieces_change_no_word(recogniser: Recogniser, make_cuts: MakeCuts, piece_ms: float) -> None:
    """NVIDIA-NeMo/Speech#12840: the same transcripts for one stream at a time, three, and all, in any order."""
    seconds = [0.3, 0.6, 1.0, 2.0, 2.01, 4.0, 5.5, 6.0]
    cuts = make_cuts([int(16_000 * s) for s in seconds], ["one two"] * 8)
    context = ChunkContext(8, 2)
    first = both_paths(chatty(recogniser), cuts, context, piece_ms)
    for at_a_time, order in ((1, 1), (3, -1)):
        config = EvalConfig(path=EvalPath.streaming, piece_ms=piece_ms, max_batch_utterances=at_a_time)
        other = evaluate(recogniser, CutSet.from_cuts(listed(cuts)[::order]), context, config, ALONE)
        assert other.utterances == first.utterances


def test_empty_and_tiny_recordings_stream_too(recogniser: Recogniser, make_cuts: MakeCuts) -> None:
    cuts = make_cuts([1, 79, 399, 400, 5000], ["one two three"] * 5)
    streamed = both_paths(recogniser, cuts, ChunkContext(4, 1))
    assert streamed.counts.utterances == 5
    assert streamed.counts.words == 15


def test_latency_does_not_depend_on_the_number_of_ranks(
    make_recogniser: Callable[[], Recogniser], make_cuts: MakeCuts, run_ranks: RunRanks, tmp_path: Path
) -> None:
    cuts = make_cuts([16_000 + 1_711 * index for index in range(7)], ["one two"] * 7)
    config = EvalConfig(path=EvalPath.streaming)
    summaries = []
    for size in (1, 2, 3, 8):
        recognisers = [chatty(make_recogniser()) for _ in range(size)]
        results = run_ranks(
            size, lambda world, r=recognisers: evaluate(r[world.rank], cuts, ChunkContext(4, 1), config, world)
        )
        (first, *others) = [result for result in results if isinstance(result, Evaluation)]
        assert first.latency is not None
        assert all(other.latency is None for other in others)
        summary = first.latency.summary()
        assert summary.pop("compute_ms")["count"]
        summaries.append(summary)
    assert all(summary == summaries[0] for summary in summaries)
    assert summaries[0]["first_token_ms"]["count"] > 3
    write_evaluation(
        tmp_path,
        "digits test, full",
        first,
        describe_streams(recognisers[0], ChunkContext(4, 1), EvalConfig(path=EvalPath.streaming)),
    )
    assert '"lookahead_samples": 2680' in (tmp_path / "latency.json").read_text(encoding="utf-8")
    assert "first token" in show_latency(first.latency)


def test_delays_count_from_the_words_where_their_times_are_known(recogniser: Recogniser, make_cuts: MakeCuts) -> None:
    """The last token of a stream is known when the audio ends, at the latest, and never before its own frame."""
    (cut,) = listed(make_cuts([32_000], ["one two"]))
    assert isinstance(cut, MonoCut)
    untimed = both_paths(chatty(recogniser), CutSet.from_cuts([cut]), ChunkContext(4, None)).latency
    words = [AlignmentItem("one", 0.2, 0.3), AlignmentItem("two", 0.7, 0.4)]
    cut.supervisions[0] = cut.supervisions[0].with_alignment("word", words)
    assert spoken_words(cut) == [SpokenWord("one", 0.2, 0.5), SpokenWord("two", 0.7, 1.1)]
    timed = both_paths(recogniser, CutSet.from_cuts([cut]), ChunkContext(4, None)).latency
    assert timed is not None
    assert untimed is not None
    (first,), (first_timed,) = untimed.first_token.counts, timed.first_token.counts
    (last,), (last_timed,) = untimed.last_token.counts, timed.last_token.counts
    assert first_timed == first - 200_000
    assert last_timed == last + 900_000
    assert last <= 0


def test_words_are_complete_with_their_last_letter(recogniser: Recogniser) -> None:
    encode = recogniser.tokenizer.encode
    tokens = encode("one two three")
    assert recogniser.tokenizer.decode(tokens) == "one two three"
    completed = completing_tokens(tokens, recogniser.tokenizer)
    assert [recogniser.tokenizer.decode(tokens[: place + 1]) for place in completed] == [
        "one",
        "one two",
        "one two three",
    ]
    words = [SpokenWord(word, 0.0, 1.0) for word in ("one", "five", "three")]
    found = recognised(words, tokens, recogniser.tokenizer)
    assert [(word.text, place) for word, place in found] == [("one", completed[0]), ("three", completed[2])]
    assert recognised([], tokens, recogniser.tokenizer) == []
