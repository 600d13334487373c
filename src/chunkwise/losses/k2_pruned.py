"""The pruned transducer loss as the k2 library computes it, behind the signatures of `chunkwise.losses.pruned`.

k2 is an optional package, whose wheels are built for one exact torch and CUDA version (`environment.yml`). It does not
take every batch: see `accepts`. Logits in padding must be finite.

Reference: k2's documentation of `rnnt_loss_smoothed`, `get_rnnt_prune_ranges` and `rnnt_loss_pruned`,
https://k2-fsa.github.io/k2/python_api/api.html
"""

import math
from importlib import import_module
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from chunkwise.losses.lattice import Paths
from chunkwise.losses.pruned import UNSMOOTHED, Smoothing, full_precision, positions_needed
from chunkwise.nn.masks import valid_frames
from chunkwise.typing import BLANK


def k2() -> Any:
    """The library; raises what its import raises."""
    return import_module("k2")


def defect(device: torch.device) -> str | None:
    """Why k2 is of no use on this device, or None where it computes a known loss: two frames, one of two symbols."""
    try:
        scores, boundary = torch.zeros(1, 2, 2, device=device), torch.tensor([[0, 0, 1, 2]], device=device)
        symbols = torch.ones(1, 1, dtype=torch.int64, device=device)
        loss = float(k2().rnnt_loss_smoothed(scores, scores, symbols, BLANK, 0.0, 0.0, boundary=boundary))
    except (ImportError, OSError, RuntimeError, AttributeError, TypeError) as error:
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    expected = 3 * math.log(2) - math.log(2)  # two paths of three arcs of 1/2 each
    return None if math.isclose(loss, expected, rel_tol=1e-4) else f"its loss of {loss:.4f} should be {expected:.4f}"


def accepts(num_frames: int, num_symbols: int) -> bool:
    """Whether k2 computes a padded batch of this size; it asserts at least one symbol, and no more than frames."""
    return 1 <= num_symbols <= num_frames


def simple_transducer_loss(
    am: Float[Tensor, "batch encoder_frames vocab"],
    lm: Float[Tensor, "batch positions vocab"],
    targets: Int[Tensor, "batch symbols"],
    lengths: Int[Tensor, " batch"],
    target_lengths: Int[Tensor, " batch"],
    smoothing: Smoothing = UNSMOOTHED,
    delay_penalty: float = 0.0,
) -> tuple[Float[Tensor, " batch"], Paths]:
    """Each utterance's smoothed loss, and the occupation of the lattice's arcs."""
    with torch.autocast(am.device.type, enabled=False):
        losses, (emit, blank) = k2().rnnt_loss_smoothed(
            lm=full_precision(lm),
            am=full_precision(am).masked_fill(~valid_frames(lengths, am.shape[1])[:, :, None], 0.0),
            symbols=_symbols(targets, target_lengths),
            termination_symbol=BLANK,
            lm_only_scale=smoothing.lm_scale,
            am_only_scale=smoothing.am_scale,
            boundary=_boundary(lengths, target_lengths),
            reduction="none",
            delay_penalty=delay_penalty,
            return_grad=True,
        )
    losses = _without_empty(losses, lengths)
    return losses, Paths(-losses.detach(), pad(emit[:, :, :-1], (0, 0, 0, 1)), blank)


def prune_ranges(
    paths: Paths, lengths: Int[Tensor, " batch"], target_lengths: Int[Tensor, " batch"], prune_range: int
) -> Int[Tensor, "batch encoder_frames range"]:
    """The consecutive positions that each frame keeps; as many as the batch needs, where that is more."""
    size = max(prune_range, positions_needed(lengths, target_lengths))
    emit = pad(paths.emit_occupation[:, :-1], (0, 1))
    return k2().get_rnnt_prune_ranges(
        px_grad=emit, py_grad=paths.blank_occupation, boundary=_boundary(lengths, target_lengths), s_range=size
    )


def pruned_transducer_loss(
    logits: Float[Tensor, "batch encoder_frames range vocab"],
    targets: Int[Tensor, "batch symbols"],
    ranges: Int[Tensor, "batch encoder_frames range"],
    lengths: Int[Tensor, " batch"],
    target_lengths: Int[Tensor, " batch"],
    delay_penalty: float = 0.0,
) -> Float[Tensor, " batch"]:
    """Each utterance's -log P(targets) over the paths inside `ranges`."""
    with torch.autocast(logits.device.type, enabled=False):
        losses = k2().rnnt_loss_pruned(
            logits=full_precision(logits),
            symbols=_symbols(targets, target_lengths),
            ranges=ranges,
            termination_symbol=BLANK,
            boundary=_boundary(lengths, target_lengths),
            reduction="none",
            delay_penalty=delay_penalty,
        )
    return _without_empty(losses, lengths)


def _boundary(lengths: Int[Tensor, " batch"], target_lengths: Int[Tensor, " batch"]) -> Int[Tensor, "batch 4"]:
    """First symbol, first frame, and the ends of both; an utterance without frames gets one, as k2 needs it."""
    begin = torch.zeros_like(lengths)
    return torch.stack((begin, begin, target_lengths, lengths.clamp(min=1)), dim=1).long()


def _symbols(targets: Int[Tensor, "batch symbols"], target_lengths: Int[Tensor, " batch"]) -> Tensor:
    """The targets, with blank for whatever stands beyond their lengths."""
    return targets.masked_fill(~valid_frames(target_lengths, targets.shape[1]), BLANK).long()


def _without_empty(losses: Float[Tensor, " batch"], lengths: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """An utterance without frames teaches nothing, and counts 0."""
    return losses.where(lengths > 0, losses.new_zeros(()))
