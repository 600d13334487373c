"""A batch: utterances side by side, with their lengths."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from chunkwise.data.skips import Skip
from chunkwise.typing import BLANK


@dataclass(frozen=True, slots=True)
class Utterance:
    """One recording with its transcript, ready to be batched."""

    id: str
    text: str  # normalised
    waveform: Float[Tensor, " samples"]
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded utterances; only `lengths` and `token_lengths` say what is padding."""

    ids: list[str]
    texts: list[str]  # normalised references
    waveforms: Float[Tensor, "batch samples"]  # at the model's rate
    lengths: Int[Tensor, " batch"]  # in samples
    tokens: Int[Tensor, "batch max_symbols"]
    token_lengths: Int[Tensor, " batch"]
    weights: Float[Tensor, " batch"]  # 1; 0 for the stand-in of a batch in which nothing could be read
    skipped: list[Skip] = field(default_factory=list)

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch with its tensors on `device`."""
        names = ("waveforms", "lengths", "tokens", "token_lengths", "weights")
        return replace(self, **{name: getattr(self, name).to(device, non_blocking=True) for name in names})


def collate(utterances: Sequence[Utterance], skipped: Sequence[Skip] = ()) -> Batch:
    """The utterances as one batch, padded with zeros.

    >>> batch = collate([Utterance("a", "x", torch.ones(2), [3]), Utterance("b", "", torch.ones(3), [])])
    >>> batch.waveforms.tolist(), batch.lengths.tolist(), batch.token_lengths.tolist()
    ([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]], [2, 3], [1, 0])
    """
    tokens = [torch.tensor(utterance.tokens, dtype=torch.int64) for utterance in utterances]
    waveforms = [utterance.waveform for utterance in utterances]
    return Batch(
        ids=[utterance.id for utterance in utterances],
        texts=[utterance.text for utterance in utterances],
        waveforms=torch.nn.utils.rnn.pad_sequence(waveforms, batch_first=True),
        lengths=torch.tensor([len(waveform) for waveform in waveforms]),
        tokens=torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=BLANK),
        token_lengths=torch.tensor([len(row) for row in tokens]),
        weights=torch.ones(len(waveforms)),
        skipped=list(skipped),
    )


def silent_batch(samples: int, skipped: Sequence[Skip]) -> Batch:
    """A stand-in of weight zero, so that a rank whose whole batch was unreadable still takes part in the step."""
    batch = collate([Utterance("silence", "", torch.zeros(samples), [BLANK + 1])], skipped)
    return replace(batch, weights=torch.zeros(1))
