"""The transducer's lattice: the likelihood of all its paths, and how often each arc is used."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, threshold

from chunkwise.nn.masks import valid_frames

IMPOSSIBLE = float("-inf")

NEGLIGIBLE = 1e-15
"""A probability that counts as zero in a gradient: products of smaller ones are denormal numbers in float32, on which
a CPU's matrix product takes ten times as long."""


class Paths(NamedTuple):
    """All paths' log-likelihood, and the posterior probability that a path takes each arc."""

    log_likelihood: Float[Tensor, " batch"]
    emit_occupation: Float[Tensor, "batch positions frames"]
    blank_occupation: Float[Tensor, "batch positions frames"]


def sum_paths(
    emit: Float[Tensor, "batch positions frames"],
    blank: Float[Tensor, "batch positions frames"],
    lengths: Int[Tensor, " batch"],
    target_lengths: Int[Tensor, " batch"],
) -> Paths:
    """The log-sum over all paths from (0, 0) to (target length, length), differentiable in the arcs.

    A path at position u of the transcript and frame t either emits, (u, t) -> (u + 1, t), or takes
    blank, (u, t) -> (u, t + 1). Arcs outside an utterance's lengths are never read. The gradient of
    the log-likelihood by an arc is the arc's occupation, so no graph over the lattice is kept. Sums run
    in float64: an occupation is the exponential of a small difference of numbers of the loss's size.

    Reference: Graves 2012, "Sequence Transduction with Recurrent Neural Networks", arXiv:1211.3711.

    >>> half = torch.full((1, 2, 3), 0.5).log()
    >>> sum_paths(half, half, torch.tensor([3]), torch.tensor([1])).log_likelihood.exp()  # 3 paths of 4 arcs
    tensor([0.1875])
    """
    return Paths(*_SumPaths.apply(emit, blank, lengths, target_lengths))


class _SumPaths(torch.autograd.Function):
    """Forward and backward variables along anti-diagonals d = u + t, both in the same loop."""

    @staticmethod
    def forward(ctx: Any, emit: Tensor, blank: Tensor, lengths: Tensor, target_lengths: Tensor) -> tuple:
        dtype, (batch, num_positions, num_frames) = emit.dtype, emit.shape
        utterances = torch.arange(batch, device=emit.device)
        frame_exists = valid_frames(lengths, num_frames)[:, None]
        emits = frame_exists & valid_frames(target_lengths, num_positions)[:, :, None]
        blanks = frame_exists & valid_frames(target_lengths + 1, num_positions)[:, :, None]
        exact = dtype if emit.device.type == "mps" else torch.float64  # which MPS does not have
        emit = _skew(emit.masked_fill(~emits, IMPOSSIBLE).to(exact))
        blank = _skew(blank.masked_fill(~blanks, IMPOSSIBLE).to(exact))
        # past its end an utterance takes blanks of probability one, so that all end on the last anti-diagonal
        after_end = torch.arange(len(blank), device=emit.device)[:, None] >= lengths + target_lengths
        blank[:, utterances, target_lengths] = blank[:, utterances, target_lengths].masked_fill(after_end, 0.0)

        start = emit.new_full((2 * batch, num_positions), IMPOSSIBLE)
        start[:batch, 0] = 0.0
        start[batch + utterances, num_positions - 1 - target_lengths] = 0.0
        arrive = torch.cat((pad(emit[:, :, :-1], (1, 0), value=IMPOSSIBLE), emit.flip(0, 2)), dim=1)
        stay = torch.cat((blank, blank.flip(0, 2)), dim=1)
        nodes = _recursion(start, arrive, stay)
        before, after = nodes[:, :batch], nodes[:, batch:].flip(0, 2)

        total = before[-1, utterances, target_lengths]
        known = total.masked_fill(total == IMPOSSIBLE, 0.0)[:, None]
        emit_occupation = torch.zeros_like(emit)
        emit_occupation[:, :, :-1] = (before[:-1] + emit - known)[:, :, :-1].add_(after[1:, :, 1:]).exp_()
        blank_occupation = (before[:-1] + blank - known).add_(after[1:]).exp_()
        emit_occupation, blank_occupation = (
            threshold(occupation, NEGLIGIBLE, 0.0).to(dtype) for occupation in (emit_occupation, blank_occupation)
        )
        occupations = (_unskew(emit_occupation, num_frames), _unskew(blank_occupation, num_frames) * blanks)
        ctx.save_for_backward(*occupations)
        ctx.mark_non_differentiable(*occupations)
        return total.to(dtype), *occupations

    @staticmethod
    @once_differentiable  # whose type makes `ctx` positional, unlike that of torch's own base class
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple:  # pyright: ignore[reportIncompatibleMethodOverride]
        emit_occupation, blank_occupation = ctx.saved_tensors
        grad = grad_outputs[0][:, None, None]
        return grad * emit_occupation, grad * blank_occupation, None, None


def _recursion(
    start: Float[Tensor, "batch positions"],
    arrive: Float[Tensor, "diagonals batch positions"],
    stay: Float[Tensor, "diagonals batch positions"],
) -> Float[Tensor, "diagonals_and_start batch positions"]:
    """node[d + 1, u] = log(exp(node[d, u] + stay[d, u]) + exp(node[d, u - 1] + arrive[d, u]))."""
    nodes = start.new_full((len(stay) + 1, start.shape[0], start.shape[1] + 1), IMPOSSIBLE)  # column 0: before u = 0
    nodes[0, :, 1:] = start
    same, previous = nodes[:, :, 1:].unbind(), nodes[:, :, :-1].unbind()
    stayed, arrived = torch.empty_like(start), torch.empty_like(start)
    for diagonal, (arrive_arcs, stay_arcs) in enumerate(zip(arrive.unbind(), stay.unbind(), strict=True)):
        torch.add(same[diagonal], stay_arcs, out=stayed)
        torch.add(previous[diagonal], arrive_arcs, out=arrived)
        torch.logaddexp(stayed, arrived, out=same[diagonal + 1])
    return nodes[:, :, 1:]


def _skew(arcs: Float[Tensor, "batch positions frames"]) -> Float[Tensor, "diagonals batch positions"]:
    """The same arcs by anti-diagonal; row u moves right by u, by re-reading the memory with shorter rows."""
    batch, num_positions, num_frames = arcs.shape
    width = num_frames + num_positions
    rows = pad(arcs, (0, num_positions), value=IMPOSSIBLE).reshape(batch, -1)[:, :-num_positions]
    return rows.reshape(batch, num_positions, width - 1).permute(2, 0, 1).contiguous()


def _unskew(
    diagonals: Float[Tensor, "diagonals batch positions"], num_frames: int
) -> Float[Tensor, "batch positions frames"]:
    """The inverse of `_skew`."""
    _, batch, num_positions = diagonals.shape
    rows = pad(diagonals.permute(1, 2, 0).reshape(batch, -1), (0, num_positions))
    return rows.reshape(batch, num_positions, -1)[:, :, :num_frames].contiguous()
