"""The full transducer loss: every path through every frame and symbol."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torchaudio.functional import rnnt_loss

from chunkwise.nn.masks import valid_frames
from chunkwise.typing import BLANK


def full_transducer_loss(
    logits: Float[Tensor, "batch encoder_frames positions vocab"],
    targets: Int[Tensor, "batch symbols"],
    logit_lengths: Int[Tensor, " batch"],
    target_lengths: Int[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """Each utterance's -log P(targets), in float32 whatever the logits' precision; `positions` is symbols + 1.

    Only the lengths decide what counts: logits and target ids beyond them may hold anything, a target
    may be empty, or longer than the encoder frames. An utterance without frames has no path at all and
    teaches nothing: its loss and gradient are 0.

    Reference: Graves 2012, "Sequence Transduction with Recurrent Neural Networks", arXiv:1211.3711.

    >>> logits, nothing = torch.zeros(1, 6, 1, 5), torch.zeros(1, 0, dtype=torch.int64)
    >>> loss = full_transducer_loss(logits, nothing, torch.tensor([6]), torch.tensor([0]))
    >>> round(loss.item(), 4)  # 6 blanks of 1/5 each
    9.6566
    """
    if not logits.numel():
        return logits.float().sum((1, 2, 3))
    num_frames, num_symbols = max(int(logit_lengths.max()), 1), int(target_lengths.max())
    targets = targets[:, :num_symbols]
    targets = targets.masked_fill(~valid_frames(target_lengths, num_symbols), BLANK)
    with torch.autocast(logits.device.type, enabled=False):
        losses = rnnt_loss(
            logits[:, :num_frames, : num_symbols + 1].float().contiguous(),
            targets.int().contiguous(),
            logit_lengths.clamp(min=1).int(),
            target_lengths.int(),
            blank=BLANK,
            reduction="none",
        )
    return losses.where(logit_lengths > 0, losses.new_zeros(()))
