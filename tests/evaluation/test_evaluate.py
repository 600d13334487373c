"""Every utterance is scored exactly once, and the result is the same for any number of ranks and any batches."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from lhotse import CutSet

from chunkwise.data.loading import BadAudio, SpeechDataset
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.evaluation.config import EvalConfig, EvalKind
from chunkwise.evaluation.evaluate import evaluate
from chunkwise.evaluation.recogniser import Recogniser
from chunkwise.evaluation.results import write_evaluation
from chunkwise.evaluation.scorer import LossFunction
from chunkwise.evaluation.tally import Evaluation, ScoredUtterance
from chunkwise.evaluation.wer import ErrorCounts, count_errors
from chunkwise.models.context import ChunkContext
from chunkwise.typing import World

FULL = ChunkContext(None, None)
LENGTHS = [16_000 + 2_411 * index for index in range(9)]
TEXTS = ["one two three", "two", "five four nine", "seven eight", ""]
REFERENCES = [TEXTS[index % 5] for index in range(9)]

MakeCuts = Callable[[list[int], list[str]], CutSet]
MakeRecogniser = Callable[[], Recogniser]
RunRanks = Callable[[int, Callable[[World], object]], list[object]]
EvaluateRanks = Callable[..., list[Evaluation]]


@pytest.fixture
def evaluate_ranks(make_recogniser: MakeRecogniser, run_ranks: RunRanks) -> EvaluateRanks:
    """Evaluates on a world of any size; each rank has its own copy of the model."""

    def run(size: int, cuts: CutSet, config: EvalConfig, loss: LossFunction | None = None) -> list[Evaluation]:
        recognisers = [make_recogniser() for _ in range(size)]

        def evaluate_rank(world: World) -> Evaluation:
            return evaluate(recognisers[world.rank], cuts, FULL, config, world, loss)

        return [result for result in run_ranks(size, evaluate_rank) if isinstance(result, Evaluation)]

    return run


def test_the_result_does_not_depend_on_ranks_or_batches(
    make_cuts: MakeCuts, evaluate_ranks: EvaluateRanks, tmp_path: Path
) -> None:  # wenet-e2e/wenet#2263
    cuts = make_cuts(LENGTHS, REFERENCES)
    expected = evaluate_ranks(1, cuts, EvalConfig(max_batch_utterances=1))[0]
    write_evaluation(tmp_path / "expected", "digits test, full", expected)
    files = ["hypotheses.jsonl", "metrics.json", "report.md", "report.html"]
    alone = {name: (tmp_path / "expected" / name).read_bytes() for name in files}
    assert expected.utterances is not None
    assert any(utterance.hypothesis for utterance in expected.utterances)
    for size, batch, kind in (
        (2, 4, "sharded"),
        (3, 64, "sharded"),
        (5, 1, "sharded"),
        (11, 2, "sharded"),
        (2, 3, "single"),
    ):
        config = EvalConfig(kind=EvalKind(kind), max_batch_utterances=batch, max_batch_s=7.0)
        shuffled = CutSet.from_cuts(random.Random(size).sample(list(cuts), len(cuts)))
        results = evaluate_ranks(size, shuffled, config)
        assert [(result.counts, result.audio_s) for result in results] == [(expected.counts, expected.audio_s)] * size
        assert [result.utterances is None for result in results] == [False] + [True] * (size - 1)
        write_evaluation(tmp_path / "other", "digits test, full", results[0])
        assert {name: (tmp_path / "other" / name).read_bytes() for name in files} == alone


def test_the_counts_are_those_of_the_listed_utterances(make_cuts: MakeCuts, evaluate_ranks: EvaluateRanks) -> None:
    result = evaluate_ranks(2, make_cuts(LENGTHS, REFERENCES), EvalConfig())[0]
    assert result.utterances is not None
    assert [row.id for row in result.utterances] == [f"u{index:02d}" for index in range(9)]
    assert [row.reference for row in result.utterances] == REFERENCES
    assert {row.speaker for row in result.utterances} == {"s"}
    spelled = sum(len(text) + 1 for text in REFERENCES if text)  # and the mark of a word's start, before each text
    assert (result.reference_tokens, result.unknown_tokens) == (spelled, 0)
    assert result.hypothesis_tokens >= sum(len(row.hypothesis) for row in result.utterances)
    scored = (count_errors(row.reference, row.hypothesis) for row in result.utterances)
    assert result.counts == reduce(add, scored, ErrorCounts())
    assert result.audio_s == sum(LENGTHS) / 16_000
    assert result.rtf is not None
    assert result.rtf > 0


@dataclass(frozen=True)
class ScriptedRecogniser(Recogniser):
    """Says what stands in the script for an utterance of so many frames."""

    script: dict[int, str]

    def search_features(self, features: torch.Tensor, lengths: torch.Tensor, context: ChunkContext) -> list[Hypothesis]:
        heard = [self.tokenizer.encode(self.script[frames]) for frames in lengths.tolist()]
        return [Hypothesis(tokens=tokens, frames=[0] * len(tokens), score=0.0) for tokens in heard]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_no_utterance_is_counted_twice_or_lost(
    size: int, recogniser: Recogniser, make_cuts: MakeCuts, run_ranks: RunRanks
) -> None:  # pytorch/pytorch#25162
    references = ["one " * 10, *["two three four five nine"] * 6]
    samples = [1_600 * (index + 1) for index in range(7)]
    script = {10 * (index + 1): reference for index, reference in enumerate(references)} | {10: "two " * 10}
    parts = recogniser.model, recogniser.fbank, recogniser.tokenizer, recogniser.search
    scripted = ScriptedRecogniser(*parts, script)
    cuts = make_cuts(samples, references)
    results = run_ranks(size, lambda world: evaluate(scripted, cuts, FULL, EvalConfig(), world).counts)
    for counts in results:
        assert isinstance(counts, ErrorCounts)
        assert (counts.word_errors, counts.words, counts.utterances, counts.sentence_errors) == (10, 40, 7, 1)
        assert counts.wer == 0.25


@pytest.mark.parametrize("kind", list(EvalKind))
def test_an_empty_set_is_an_error_on_every_rank(kind: EvalKind, recogniser: Recogniser, run_ranks: RunRanks) -> None:
    def refusal(world: World) -> str:
        with pytest.raises(ValueError, match="holds no utterance") as caught:
            evaluate(recogniser, CutSet.from_cuts([]), FULL, EvalConfig(kind=kind, split="dev"), world)
        return str(caught.value)

    assert all("eval.split=dev" in str(text) for text in run_ranks(3, refusal))


def test_an_id_may_not_stand_twice(make_cuts: MakeCuts, evaluate_ranks: EvaluateRanks) -> None:
    cut = next(iter(make_cuts([8_000], ["one"])))
    with pytest.raises(ValueError, match="the utterance id u00 2 times"):
        evaluate_ranks(1, CutSet.from_cuts([cut, cut.with_id("u01"), cut]), EvalConfig())


def test_ranks_that_were_given_different_cuts_notice(
    make_cuts: MakeCuts, make_recogniser: MakeRecogniser, run_ranks: RunRanks
) -> None:
    cuts, recognisers = make_cuts([8_000, 9_000, 9_500], ["one", "two", "two"]), [make_recogniser(), make_recogniser()]

    def evaluate_rank(world: World) -> None:
        mine = cuts if world.is_main else CutSet.from_cuts(list(cuts)[:2])
        with pytest.raises(ValueError, match="give every rank the same cuts"):
            evaluate(recognisers[world.rank], mine, FULL, EvalConfig(max_batch_utterances=1), world)

    run_ranks(2, evaluate_rank)


def test_audio_too_short_for_a_frame_counts_as_deletions(
    make_cuts: MakeCuts, evaluate_ranks: EvaluateRanks
) -> None:  # modelscope/FunASR#1924
    result = evaluate_ranks(2, make_cuts([1, 79, 399, 400], ["one two three"] * 4), EvalConfig())[0]
    assert result.utterances is not None
    assert (result.counts.utterances, result.counts.words) == (4, 12)
    assert [row.hypothesis for row in result.utterances[:2]] == ["", ""]
    assert [row.deletions for row in result.utterances[:2]] == [3, 3]


@pytest.mark.parametrize("size", [1, 3])
def test_audio_that_cannot_be_used_is_named_and_stops_every_rank(
    size: int, make_cuts: MakeCuts, make_recogniser: MakeRecogniser, run_ranks: RunRanks, tmp_path: Path
) -> None:  # flashlight/wav2letter#386
    cuts = make_cuts([8_000] * 4, ["one"] * 4)
    soundfile.write(tmp_path / "u02.wav", np.full(8_000, np.nan), 16_000, subtype="FLOAT")
    recognisers = [make_recogniser() for _ in range(size)]

    def refusal(world: World) -> str:
        with pytest.raises(ValueError, match="u02.wav|rank 0") as caught:
            evaluate(recognisers[world.rank], cuts, FULL, EvalConfig(max_batch_utterances=1), world)
        return str(caught.value)

    messages = [str(message) for message in run_ranks(size, refusal)]
    assert "u02.wav has non-finite samples" in messages[0]
    assert all("u02.wav" in message or "rank 0 says why" in message for message in messages)


def test_training_loss_is_the_same_for_any_ranks_and_leaves_out_what_has_none(
    make_cuts: MakeCuts, evaluate_ranks: EvaluateRanks
) -> None:
    def loss(features, lengths, batch, context) -> torch.Tensor:  # a stand-in: a third of a nat per frame
        assert context == FULL
        assert not torch.is_grad_enabled()
        assert features.shape[:2] == (len(batch.ids), int(lengths.max()))
        return torch.where(lengths >= batch.token_lengths, lengths / 3, torch.inf)

    cuts = make_cuts([16_000, 32_000, 800], ["one", "two three", "five four nine"])
    results = [evaluate_ranks(size, cuts, EvalConfig(), loss)[-1] for size in (1, 2, 5)]
    tokens = len("one") + len("two three") + 2  # and the mark of a word's start, before each text
    assert results[0].loss_per_token == pytest.approx(100 / tokens, abs=1e-6)
    assert [result.utterances_without_loss for result in results] == [1, 1, 1]
    assert len({result.loss_per_token for result in results}) == 1


def test_evaluating_twice_gives_the_same_and_changes_no_weight(
    recogniser: Recogniser, make_cuts: MakeCuts, run_ranks: RunRanks
) -> None:  # speechbrain/speechbrain#1159
    cuts = make_cuts(LENGTHS[:3], REFERENCES[:3])
    before = {name: value.clone() for name, value in recogniser.model.state_dict().items()}
    first = run_ranks(1, lambda world: evaluate(recogniser, cuts, FULL, EvalConfig(), world))[0]
    backwards = CutSet.from_cuts(list(cuts)[::-1])
    second = run_ranks(1, lambda world: evaluate(recogniser, backwards, FULL, EvalConfig(), world))[0]
    assert isinstance(first, Evaluation)
    assert isinstance(second, Evaluation)
    assert (first.counts, first.utterances) == (second.counts, second.utterances)
    assert all(torch.equal(value, before[name]) for name, value in recogniser.model.state_dict().items())


def test_a_scored_utterance_survives_its_line() -> None:
    scored = ScoredUtterance("u1", "鬱 \u2028 é", "⁇", 1, 2, 0, speaker="s 1")
    assert "\n" not in scored.to_line()
    assert "鬱" in scored.to_line()
    assert ScoredUtterance.from_line(scored.to_line()) == scored


def test_a_line_without_a_speaker_is_read() -> None:
    line = '{"id": "u1", "reference": "a b", "hypothesis": "", "substitutions": 0, "deletions": 2, "insertions": 0}'
    assert ScoredUtterance.from_line(line) == ScoredUtterance("u1", "a b", "", 0, 2, 0, speaker=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_batch_s": 0.0}, r"eval\.max_batch_s=0\.0"),
        ({"max_batch_s": float("nan")}, r"eval\.max_batch_s=nan"),
        ({"max_batch_utterances": 0}, r"eval\.max_batch_utterances=0"),
        ({"split": ""}, r"eval\.split=''"),
    ],
)
def test_a_config_that_holds_nothing_is_refused(change: dict[str, float | int | str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(EvalConfig(), **change)


def test_the_dataset_keeps_empty_audio(recogniser: Recogniser, make_cuts: MakeCuts) -> None:
    batch = SpeechDataset(recogniser.tokenizer, 16_000, BadAudio.refuse)[make_cuts([0, 8_000], ["one two", "two"])]
    assert batch.lengths.tolist() == [0, 8_000]
    assert batch.skipped == []
