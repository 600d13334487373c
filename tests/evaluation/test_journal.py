"""An evaluation that was cut off goes on where it was: nothing is decoded twice, and the result is that of one run."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from lhotse import CutSet, MonoCut

from chunkwise.data.loading import listed
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.evaluation.config import EvalConfig
from chunkwise.evaluation.evaluate import evaluate, evaluate_contexts
from chunkwise.evaluation.journal import UNFINISHED, Journal
from chunkwise.evaluation.recogniser import Recogniser
from chunkwise.evaluation.wer import ErrorCounts
from chunkwise.models.context import FULL, ChunkContext
from chunkwise.training.distributed import World
from chunkwise.typing import World as AnyWorld

LENGTHS = [9_000 + 1_911 * index for index in range(6)]
TEXTS = ["one two three", "two", "five four nine", "", "seven eight", "one"]
CONFIG = EvalConfig(max_batch_utterances=2)

MakeCuts = Callable[[list[int], list[str]], CutSet]
MakeRecogniser = Callable[[], Recogniser]
RunRanks = Callable[[int, Callable[[AnyWorld], object]], list[object]]


@dataclass(frozen=True)
class CountingRecogniser(Recogniser):
    """Counts the rows it decodes, and is cut off after so many batches."""

    batches: int
    rows: list[int] = field(default_factory=list)

    def search_features(self, features: torch.Tensor, lengths: torch.Tensor, context: ChunkContext) -> list[Hypothesis]:
        if len(self.rows) == self.batches:
            raise KeyboardInterrupt
        self.rows.append(len(lengths))
        return super().search_features(features, lengths, context)


@pytest.fixture
def cuts(make_cuts: MakeCuts) -> CutSet:
    return make_cuts(LENGTHS, TEXTS)


def counting(recogniser: Recogniser, batches: int) -> CountingRecogniser:
    return CountingRecogniser(recogniser.model, recogniser.fbank, recogniser.tokenizer, recogniser.search, batches)


def cut_off(recogniser: Recogniser, cuts: CutSet, folder: Path) -> None:
    """End an evaluation after two of its three batches."""
    world = World(0, 1, torch.device("cpu"))
    with pytest.raises(KeyboardInterrupt):
        evaluate_contexts(counting(recogniser, 2), cuts, [FULL], CONFIG, world, journal=Journal(folder, "question"))


def rows_still_decoded(recogniser: Recogniser, cuts: CutSet, folder: Path, question: str = "question") -> int:
    """Go on; the result must be that of an evaluation in one go."""
    counted, world = counting(recogniser, 99), World(0, 1, torch.device("cpu"))
    [result] = evaluate_contexts(counted, cuts, [FULL], CONFIG, world, journal=Journal(folder, question))
    whole = evaluate(recogniser, cuts, FULL, CONFIG, world)
    assert (result.counts, result.utterances, result.audio_s) == (whole.counts, whole.utterances, whole.audio_s)
    return sum(counted.rows)


def test_finished_batches_are_not_decoded_again(recogniser: Recogniser, cuts: CutSet, tmp_path: Path) -> None:
    cut_off(recogniser, cuts, tmp_path)
    assert rows_still_decoded(recogniser, cuts, tmp_path) == 2
    assert rows_still_decoded(recogniser, cuts, tmp_path) == 0
    Journal(tmp_path, "question").discard()
    assert not (tmp_path / UNFINISHED).exists()


def test_a_line_that_was_cut_is_decoded_again(recogniser: Recogniser, cuts: CutSet, tmp_path: Path) -> None:
    cut_off(recogniser, cuts, tmp_path)
    file = tmp_path / UNFINISHED / "rank-0.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    assert rows_still_decoded(recogniser, cuts, tmp_path) == 4


def test_an_end_between_writing_and_tidying_counts_nothing_twice(
    recogniser: Recogniser, cuts: CutSet, tmp_path: Path
) -> None:
    cut_off(recogniser, cuts, tmp_path)
    folder = tmp_path / UNFINISHED
    (folder / "finished.jsonl").write_bytes((folder / "rank-0.jsonl").read_bytes())
    assert rows_still_decoded(recogniser, cuts, tmp_path) == 2


def test_a_changed_recording_is_decoded_again_with_its_batch(
    recogniser: Recogniser, cuts: CutSet, tmp_path: Path
) -> None:
    cut_off(recogniser, cuts, tmp_path)
    longest = max(listed(cuts), key=lambda cut: cut.duration)
    assert isinstance(longest, MonoCut)
    assert longest.recording is not None
    os.utime(longest.recording.sources[0].source, (0, 0))
    assert rows_still_decoded(recogniser, cuts, tmp_path) == 4


def test_another_question_is_answered_anew(recogniser: Recogniser, cuts: CutSet, tmp_path: Path) -> None:
    cut_off(recogniser, cuts, tmp_path)
    assert rows_still_decoded(recogniser, cuts, tmp_path, "another") == 6


@pytest.mark.parametrize("size", [2, 3])
def test_any_number_of_ranks_goes_on(
    size: int, make_recogniser: MakeRecogniser, cuts: CutSet, tmp_path: Path, run_ranks: RunRanks
) -> None:
    cut_off(make_recogniser(), cuts, tmp_path)
    whole = evaluate(make_recogniser(), cuts, FULL, CONFIG, World(0, 1, torch.device("cpu")))
    recognisers = [counting(make_recogniser(), 99) for _ in range(size)]

    def go_on(world: AnyWorld) -> ErrorCounts:
        journal = Journal(tmp_path, "question")
        return evaluate_contexts(recognisers[world.rank], cuts, [FULL], CONFIG, world, journal=journal)[0].counts

    assert run_ranks(size, go_on) == [whole.counts] * size
    assert sum(sum(each.rows) for each in recognisers) == 2


def test_several_contexts_at_once_are_each_evaluated_as_alone(
    recogniser: Recogniser, cuts: CutSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, contexts = World(0, 1, torch.device("cpu")), [FULL, ChunkContext(8, 2), ChunkContext(2, 0)]
    alone = [evaluate(recogniser, cuts, context, CONFIG, world) for context in contexts]
    batches, features = list[int](), Recogniser.features
    monkeypatch.setattr(Recogniser, "features", lambda self, batch: (batches.append(1), features(self, batch))[1])
    together = evaluate_contexts(recogniser, cuts, contexts, CONFIG, world)
    assert [(each.counts, each.utterances) for each in together] == [(each.counts, each.utterances) for each in alone]
    assert len(batches) == 3, "features are read once for all contexts"
