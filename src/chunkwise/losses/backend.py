"""The pruned loss behind one function, whatever computes it: k2 or PyTorch alone."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from chunkwise.losses import k2_pruned, pruned
from chunkwise.losses.config import Backend, LossConfig, LossKind
from chunkwise.losses.pruned import Pruning

Join = Callable[[Int[Tensor, "batch encoder_frames range"]], Float[Tensor, "batch encoder_frames range vocab"]]
"""The joiner's logits at the positions that each frame keeps."""


class Target(NamedTuple):
    """What a batch should be recognised as; the lengths are those of the encoded utterances."""

    tokens: Int[Tensor, "batch symbols"]
    lengths: Int[Tensor, " batch"]
    token_lengths: Int[Tensor, " batch"]


class PrunedLosses(NamedTuple):
    """One value per utterance, not reduced: of the trivial joiner over all paths, of the joiner over those kept."""

    simple: Float[Tensor, " batch"]
    pruned: Float[Tensor, " batch"]


class Choice(NamedTuple):
    """The backend that is used, never `auto`, and what the user should know of it."""

    backend: Backend
    notice: str | None


def refuse_missing_k2(config: LossConfig) -> None:
    """An error at once, where every rank would meet it later."""
    if config.kind is LossKind.pruned and config.backend is Backend.k2:
        choose_backend(config.backend, torch.device("cpu"))


def choose_backend(asked: Backend, device: torch.device) -> Choice:
    """k2 or native; `auto` takes k2 where it computes a known loss on this device."""
    if asked is Backend.native:
        return Choice(Backend.native, None)
    defect = k2_pruned.defect(device)
    if asked is Backend.k2 and defect is not None:
        raise ValueError(
            f"loss.backend=k2 does not work on {device.type} ({defect}); install the k2 that fits your torch as "
            "environment.yml says, or set loss.backend=native"
        )
    if asked is Backend.k2:
        return Choice(Backend.k2, None)
    if defect is None:
        return Choice(Backend.k2, "loss.backend=auto took k2")
    return Choice(Backend.native, f"loss.backend=auto took native, as k2 does not work here ({defect})")


def pruned_losses(
    backend: Backend,
    am: Float[Tensor, "batch encoder_frames vocab"],
    lm: Float[Tensor, "batch positions vocab"],
    join: Join,
    target: Target,
    pruning: Pruning,
) -> PrunedLosses:
    """The simple and the pruned loss; `am` and `lm` are the simple model's scores.

    A batch that k2 refuses, without any symbol or with more symbols than frames, is computed natively.
    """
    by_k2 = backend is Backend.k2 and k2_pruned.accepts(am.shape[1], target.tokens.shape[1])
    side = k2_pruned if by_k2 else pruned
    tokens, lengths, token_lengths = target
    simple, paths = side.simple_transducer_loss(am, lm, *target, pruning.smoothing, pruning.delay_penalty)
    ranges = side.prune_ranges(paths, lengths, token_lengths, pruning.prune_range)
    logits = join(ranges)
    return PrunedLosses(
        simple, side.pruned_transducer_loss(logits, tokens, ranges, lengths, token_lengths, pruning.delay_penalty)
    )
