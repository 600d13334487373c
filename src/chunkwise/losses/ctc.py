"""The auxiliary CTC loss."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from chunkwise.nn.masks import valid_frames
from chunkwise.typing import BLANK


def ctc_loss(
    logits: Float[Tensor, "batch encoder_frames vocab"],
    targets: Int[Tensor, "batch symbols"],
    lengths: Int[Tensor, " batch"],
    target_lengths: Int[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """Each utterance's -log P(targets), in float32 whatever the logits' precision.

    A target needs as many frames as it has symbols, and one more per repeated symbol; an utterance
    that is too short for it has an infinite loss. One without any frame teaches nothing: its loss is 0.

    Reference: Graves et al. 2006, "Connectionist Temporal Classification", ICML 2006.

    >>> loss = ctc_loss(torch.zeros(1, 2, 4), torch.tensor([[1]]), torch.tensor([2]), torch.tensor([1]))
    >>> round(loss.exp().item(), 4)  # 3 paths (a a, a blank, blank a) of 1/16 each
    5.3333
    """
    if not logits.numel():
        return logits.float().sum((1, 2))
    frame_exists = valid_frames(lengths, logits.shape[1])
    targets = targets.masked_fill(~valid_frames(target_lengths, targets.shape[1]), BLANK)
    with torch.autocast(logits.device.type, enabled=False):
        log_probabilities = logits.float().masked_fill(~frame_exists[:, :, None], 0.0).log_softmax(dim=-1)
        return functional.ctc_loss(
            log_probabilities.transpose(0, 1),
            targets.long(),
            lengths.long(),
            target_lengths.long().masked_fill(lengths == 0, 0),
            blank=BLANK,
            reduction="none",
        )
