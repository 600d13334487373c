"""An evaluation that was cut off goes on where it was: nothing is decoded twice, and the result is that of one run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from lhotse import CutSet

from chunkwise.data.loading import listed
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.evaluation.config import EvalConfig
from chunkwise.evaluation.evaluate import evaluate, evaluate_contexts
from chunkwise.evaluation.journal import Journal
from chunkwise.evaluation.recogniser import Recogniser
from chunkwise.models.context import FULL, ChunkContext
from chunkwise.training.distributed import World

LENGTHS = [9_000 + 1_911 * index for index in range(6)]
TEXTS = ["one two three", "two", "five four nine", "", "seven eight", "one"]
CONFIG = EvalConfig(max_batch_utterances=2)

MakeCuts = Callable[[list[int], list[str]], CutSet]


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


def cut_off(recogniser: Recogniser, cuts: CutSet, journal: Journal, batches: int = 2) -> None:
    world = World(0, 1, torch.device("cpu"))
    with pytest.raises(KeyboardInterrupt):
        evaluate_contexts(counting(recogniser, batches), cuts, [FULL], CONFIG, world, journal=journal)


def go_on(recogniser: Recogniser, cuts: CutSet, journal: Journal) -> tuple[int, object]:
    """How many rows were decoded, and the result."""
    counted, world = counting(recogniser, 99), World(0, 1, torch.device("cpu"))
    [result] = evaluate_contexts(counted, cuts, [FULL], CONFIG, world, journal=journal)
    assert (result.counts, result.utterances) == (
        (whole := evaluate(recogniser, cuts, FULL, CONFIG, world)).counts,
        whole.utterances,
    )
    return sum(counted.rows), result


def test_finished_batches_are_not_decoded_again(recogniser: Recogniser, cuts: CutSet, tmp_path: Path) -> None:
    cut_off(recogniser, cuts, Journal(tmp_path / "j", "q"))
    assert go_on(recogniser, cuts, Journal(tmp_path / "j", "q"))[0] == 2
    assert go_on(recogniser, cuts, Journal(tmp_path / "j", "q"))[0] == 0
    Journal(tmp_path / "j", "q").discard()
    assert not (tmp_path / "j").exists()


def test_a_line_that_was_cut_is_decoded_again(recogniser: Recogniser, cuts: CutSet, tmp_path: Path) -> None:
    cut_off(recogniser, cuts, Journal(tmp_path / "j", "q"))
    file = tmp_path / "j" / "rank-0.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    assert go_on(recogniser, cuts, Journal(tmp_path / "j", "q"))[0] == 4


def test_another_question_and_a_changed_file_are_decoded_anew(
    recogniser: Recogniser, cuts: CutSet, tmp_path: Path
) -> None:
    cut_off(recogniser, cuts, Journal(tmp_path / "j", "q"))
    changed = CutSet.from_cuts(cut.with_id("v" + cut.id) if cut.id == "u05" else cut for cut in listed(cuts))
    assert go_on(recogniser, changed, Journal(tmp_path / "j", "q"))[0] == 4
    assert go_on(recogniser, cuts, Journal(tmp_path / "j", "another"))[0] == 6
