"""Validation with the real training loss."""

from collections.abc import Callable

import pytest
from lhotse import CutSet
from torch import Tensor

from chunkwise.data.batches import Batch
from chunkwise.evaluation.config import EvalConfig
from chunkwise.evaluation.evaluate import evaluate
from chunkwise.evaluation.recogniser import Recogniser
from chunkwise.evaluation.scorer import LossFunction
from chunkwise.evaluation.tally import Evaluation
from chunkwise.losses.config import LossConfig
from chunkwise.losses.objective import Objective
from chunkwise.models.context import ChunkContext
from chunkwise.typing import World

MakeCuts = Callable[[list[int], list[str]], CutSet]
RunRanks = Callable[[int, Callable[[World], object]], list[object]]
CHUNKED = ChunkContext(chunk_frames=8, left_chunks=2)


def loss_of(objective: Objective) -> LossFunction:
    """The objective as evaluation takes it."""

    def loss(features: Tensor, lengths: Tensor, batch: Batch, context: ChunkContext) -> Tensor:
        return objective(features, lengths, batch.tokens, batch.token_lengths, context).total

    return loss


def validate(recogniser: Recogniser, cuts: CutSet, batch_utterances: int, run_ranks: RunRanks) -> Evaluation:
    config = EvalConfig(max_batch_utterances=batch_utterances)
    loss = loss_of(Objective(recogniser.model, LossConfig()))
    result = run_ranks(1, lambda world: evaluate(recogniser, cuts, CHUNKED, config, world, loss))[0]
    assert isinstance(result, Evaluation)
    return result


def test_the_loss_per_token_does_not_depend_on_batches(
    recogniser: Recogniser, make_cuts: MakeCuts, run_ranks: RunRanks
) -> None:
    cuts = make_cuts([16_000, 32_000, 24_321], ["one", "two three", "nine"])
    alone, together = (validate(recogniser, cuts, size, run_ranks).loss_per_token for size in (1, 3))
    assert alone is not None
    assert together == pytest.approx(alone, abs=1e-5)


def test_audio_without_a_frame_is_scored_but_has_no_loss(
    recogniser: Recogniser, make_cuts: MakeCuts, run_ranks: RunRanks
) -> None:
    cuts = list(make_cuts([16_000, 40, 50], ["one", "two", "two"]))
    speech, mixed, nothing = (CutSet.from_cuts(part) for part in (cuts[:1], cuts[:2], cuts[1:]))
    assert validate(recogniser, nothing, 2, run_ranks).loss_per_token is None
    result, expected = validate(recogniser, mixed, 2, run_ranks), validate(recogniser, speech, 2, run_ranks)
    assert (result.counts.utterances, result.utterances_without_loss) == (2, 1)
    assert expected.loss_per_token is not None
    assert result.loss_per_token == pytest.approx(expected.loss_per_token, abs=1e-5)
