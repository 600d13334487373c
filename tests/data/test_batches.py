"""Batches pad with zeros and say what is padding."""

import torch

from chunkwise.data.batches import Utterance, collate, silent_batch
from chunkwise.data.skips import Skip


def test_utterances_are_padded_with_zeros_and_blanks() -> None:
    batch = collate([Utterance("a", "x y", torch.ones(2), [3, 4]), Utterance("b", "", torch.zeros(0), [])])
    assert batch.ids == ["a", "b"]
    assert batch.waveforms.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert batch.lengths.tolist() == batch.token_lengths.tolist() == [2, 0]
    assert batch.tokens.tolist() == [[3, 4], [0, 0]]
    assert batch.weights.tolist() == [1.0, 1.0]


def test_a_batch_moves_as_a_whole() -> None:
    batch = collate([Utterance("a", "x", torch.ones(2), [3])], [Skip("b", "is empty")]).to("meta")
    tensors = (batch.waveforms, batch.lengths, batch.tokens, batch.token_lengths, batch.weights)
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert batch.skipped == [Skip("b", "is empty")]


def test_the_stand_in_has_no_weight() -> None:
    batch = silent_batch(16_000, [Skip("b", "is empty")])
    assert batch.weights.tolist() == [0.0]
    assert batch.lengths.tolist() == [16_000]
    assert batch.token_lengths.tolist() == [1]
    assert [skip.id for skip in batch.skipped] == ["b"]
