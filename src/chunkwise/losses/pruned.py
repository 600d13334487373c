"""The pruned transducer loss: a cheap loss says where in the transcript each frame is, the joiner looks only there.

The meaning of every quantity is that of the k2 library, and so are the values and gradients where k2 gives any. Beyond
it, a batch of empty transcripts, more symbols than frames and an utterance without frames have finite losses, and what
stands in padding is never read.

References: Kuang et al. 2022, "Pruned RNN-T for fast, memory-efficient ASR training", arXiv:2206.13236;
Kang et al. 2022, "Delay-penalized transducer for low-latency streaming ASR", arXiv:2211.00490.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from chunkwise.losses.lattice import IMPOSSIBLE, NEGLIGIBLE, Paths, sum_paths
from chunkwise.nn.masks import valid_frames
from chunkwise.typing import BLANK


@dataclass(frozen=True, slots=True)
class Smoothing:
    """How much of the simple model is the predictor alone (`lm_scale`) and the encoder alone (`am_scale`)."""

    lm_scale: float = 0.0
    am_scale: float = 0.0


UNSMOOTHED = Smoothing()


@dataclass(frozen=True, slots=True)
class Pruning:
    """How a batch is pruned: positions kept per frame, smoothing, and the price in nats of a symbol one frame later."""

    prune_range: int = 5
    smoothing: Smoothing = UNSMOOTHED
    delay_penalty: float = 0.0


def simple_transducer_loss(
    am: Float[Tensor, "batch encoder_frames vocab"],
    lm: Float[Tensor, "batch positions vocab"],
    targets: Int[Tensor, "batch symbols"],
    lengths: Int[Tensor, " batch"],
    target_lengths: Int[Tensor, " batch"],
    smoothing: Smoothing = UNSMOOTHED,
    delay_penalty: float = 0.0,
) -> tuple[Float[Tensor, " batch"], Paths]:
    """Each utterance's loss with the trivial joiner `am + lm`, and the occupation of the lattice's arcs.

    The normaliser over the vocabulary is a matrix product, so nothing of size frames x positions x
    vocab is ever built. With smoothing, arcs are interpolated in the log domain with a predictor-only
    and an encoder-only model; the latter uses the batch's mean predictor distribution, padding included.
    A delay penalty adds `delay_penalty * ((T - 1) / 2 - t)` to the score of a symbol at frame t of T.
    """
    with torch.autocast(am.device.type, enabled=False):
        am, lm = full_precision(am), full_precision(lm)
        am = am.masked_fill(~valid_frames(lengths, am.shape[1])[:, :, None], 0.0)
        targets = targets.masked_fill(~valid_frames(target_lengths, targets.shape[1]), BLANK).long()
        emit, blank = _simple_arcs(am, lm, targets, smoothing)
        if delay_penalty:
            emit = emit + _earliness(lengths, am)[:, None] * delay_penalty
        paths = sum_paths(emit, blank, lengths, target_lengths)
    return _loss(paths, lengths), paths


def prune_ranges(
    paths: Paths, lengths: Int[Tensor, " batch"], target_lengths: Int[Tensor, " batch"], prune_range: int
) -> Int[Tensor, "batch encoder_frames range"]:
    """The consecutive positions that each frame keeps: those through which the simple model's paths mostly pass.

    Ranges start at position 0, end at the transcript's end, never move back, and overlap from frame to
    frame, so that a path always survives. A batch with an utterance of so few frames that `prune_range`
    positions per frame cannot reach its end gets the smallest range that can; no range exceeds all positions.
    On the same occupations these are k2's ranges.
    """
    num_positions, num_frames = paths.blank_occupation.shape[1:]
    size = min(max(prune_range, positions_needed(lengths, target_lengths)), num_positions)
    # probability of blank within the window, less that of entering it by an emission in this very frame
    enter = pad(paths.emit_occupation[:, :-1], (0, 0, 1, 0))[:, : num_positions - size + 1]
    start = (paths.blank_occupation.unfold(1, size, 1).sum(-1) - enter).argmax(dim=1)
    end = (target_lengths - size + 1).clamp(min=0)[:, None]
    frame = torch.arange(num_frames, device=start.device)
    start = torch.where(frame < lengths[:, None] - 1, start, end)
    return _connected(start, size)[:, :, None] + torch.arange(size, device=start.device)


def positions_needed(lengths: Int[Tensor, " batch"], target_lengths: Int[Tensor, " batch"]) -> int:
    """The smallest range by which every utterance reaches its transcript's end."""
    return int((-(-target_lengths // lengths.clamp(min=1))).max()) + 1


def prune_predictions(
    predictions: Float[Tensor, "batch positions dim"], ranges: Int[Tensor, "batch encoder_frames range"]
) -> Float[Tensor, "batch encoder_frames range dim"]:
    """The rows of `predictions` that each frame keeps."""
    batch, num_positions, dim = predictions.shape
    first = torch.arange(batch, device=ranges.device)[:, None, None] * num_positions
    return predictions.reshape(-1, dim).index_select(0, (first + ranges).flatten()).reshape(*ranges.shape, dim)


def pruned_transducer_loss(
    logits: Float[Tensor, "batch encoder_frames range vocab"],
    targets: Int[Tensor, "batch symbols"],
    ranges: Int[Tensor, "batch encoder_frames range"],
    lengths: Int[Tensor, " batch"],
    target_lengths: Int[Tensor, " batch"],
    delay_penalty: float = 0.0,
) -> Float[Tensor, " batch"]:
    """Each utterance's -log P(targets) over the paths inside `ranges`; with all positions kept, the full loss.

    A delay penalty changes the scores of symbols as in the simple loss.
    """
    with torch.autocast(logits.device.type, enabled=False):
        targets = targets.masked_fill(~valid_frames(target_lengths, targets.shape[1]), BLANK).long()
        symbols = pad(targets, (0, 1), value=BLANK)[:, None].expand(-1, ranges.shape[1], -1).gather(2, ranges)
        emit, blank = _ArcLogProbabilities.apply(full_precision(logits), symbols)
        if delay_penalty:
            emit = emit + _earliness(lengths, emit)[:, :, None] * delay_penalty
        everywhere = emit.new_full((*ranges.shape[:2], targets.shape[1] + 1), IMPOSSIBLE)
        emit, blank = (everywhere.scatter(2, ranges, arcs).transpose(1, 2) for arcs in (emit, blank))
        return _loss(sum_paths(emit, blank, lengths, target_lengths), lengths)


class _ArcLogProbabilities(torch.autograd.Function):
    """log-softmax at the next symbol and at blank, keeping one tensor of the logits' size instead of several."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, symbols: Tensor) -> tuple[Tensor, Tensor]:
        normaliser = logits.logsumexp(dim=-1)
        ctx.save_for_backward(logits, symbols, normaliser)
        return logits.gather(-1, symbols[..., None])[..., 0] - normaliser, logits[..., BLANK] - normaliser

    @staticmethod
    @once_differentiable  # whose type makes `ctx` positional, unlike that of torch's own base class
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple:  # pyright: ignore[reportIncompatibleMethodOverride]
        emit_grad, blank_grad = grad_outputs
        logits, symbols, normaliser = ctx.saved_tensors
        unused = ((emit_grad == 0) & (blank_grad == 0))[..., None]
        probabilities = torch.threshold_((logits - normaliser[..., None]).exp_(), NEGLIGIBLE, 0.0)
        grad = probabilities.mul_(-(emit_grad + blank_grad)[..., None])
        grad.scatter_add_(-1, symbols[..., None], emit_grad[..., None])
        grad[..., BLANK] += blank_grad
        return grad.masked_fill_(unused, 0.0), None  # whatever padding holds, also NaN


def _simple_arcs(
    am: Float[Tensor, "batch encoder_frames vocab"],
    lm: Float[Tensor, "batch positions vocab"],
    targets: Int[Tensor, "batch symbols"],
    smoothing: Smoothing,
) -> tuple[Float[Tensor, "batch positions encoder_frames"], Float[Tensor, "batch positions encoder_frames"]]:
    """The emitting and the blank arcs' log-probabilities."""
    symbols = pad(targets, (0, 1), value=BLANK)
    am_max, lm_max = am.amax(dim=-1, keepdim=True), lm.amax(dim=-1, keepdim=True)
    am_exp, lm_exp = (am - am_max).exp(), (lm - lm_max).exp()
    tiny = torch.finfo(am.dtype).tiny
    am_emit = am.gather(2, symbols[:, None].expand(-1, am.shape[1], -1)).transpose(1, 2)
    am_blank = am[:, None, :, BLANK]
    lm_emit, lm_blank = lm.gather(2, symbols[:, :, None]), lm[:, :, BLANK, None]

    normaliser = (lm_exp @ am_exp.transpose(1, 2) + tiny).log() + lm_max + am_max.transpose(1, 2)
    rest = 1.0 - smoothing.lm_scale - smoothing.am_scale
    emit, blank = rest * (am_emit + lm_emit - normaliser), rest * (am_blank + lm_blank - normaliser)
    if smoothing.lm_scale:
        normaliser = lm.logsumexp(dim=-1, keepdim=True)
        emit = emit + smoothing.lm_scale * (lm_emit - normaliser)
        blank = blank + smoothing.lm_scale * (lm_blank - normaliser)
    if smoothing.am_scale:
        unigram = lm.softmax(dim=-1).mean(dim=(0, 1)) + tiny
        normaliser = ((am_exp @ unigram).log() + am_max[:, :, 0])[:, None]
        emit = emit + smoothing.am_scale * (am_emit + unigram.log()[symbols][:, :, None] - normaliser)
        blank = blank + smoothing.am_scale * (am_blank + unigram[BLANK].log() - normaliser)
    return emit, blank


def _earliness(
    lengths: Int[Tensor, " batch"], per_frame: Float[Tensor, "batch frames _"]
) -> Float[Tensor, "batch frames"]:
    """How many frames before its utterance's middle a frame is, negative after it; zero on average."""
    frames = torch.arange(per_frame.shape[1], device=lengths.device)
    return (lengths[:, None] - 1).to(per_frame.dtype) / 2 - frames


def _connected(start: Int[Tensor, "batch frames"], size: int) -> Int[Tensor, "batch frames"]:
    """`start` lowered and raised until it never falls, and rises by less than `size` per frame from 0."""
    reach = (size - 1) * torch.arange(start.shape[1], device=start.device)
    start = _lower_bound(start)
    return reach - _lower_bound(reach - start).clamp(min=0)


def _lower_bound(values: Int[Tensor, "batch frames"]) -> Int[Tensor, "batch frames"]:
    """The largest non-falling sequence that nowhere exceeds `values`."""
    return values.flip(1).cummin(dim=1).values.flip(1)


def _loss(paths: Paths, lengths: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """The negative log-likelihood; an utterance without frames has no path, teaches nothing, and counts 0."""
    return -paths.log_likelihood.where(lengths > 0, paths.log_likelihood.new_zeros(()))


def full_precision(scores: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """float32, or float64 as it is."""
    return scores if scores.dtype == torch.float64 else scores.float()
