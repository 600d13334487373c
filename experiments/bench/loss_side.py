"""One side of the benchmark of losses, in a process of its own: joiner and loss, forward and backward, of one shape.

It runs in `.venv` (native, full) and in `.venv-k2` (k2), and prints seconds and megabytes as JSON.

    python experiments/bench/loss_side.py native 8 375 60 500
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from chunkwise.losses import pruned
from chunkwise.losses.backend import Target, pruned_losses
from chunkwise.losses.config import Backend
from chunkwise.losses.pruned import Pruning, Smoothing

DIM, LM_SCALE = 512, 0.25
PRUNING = Pruning(prune_range=5, smoothing=Smoothing(LM_SCALE))

Pass = Callable[[], Tensor]
"""Forward: the loss."""


class Inputs:
    """What the encoder and the predictor give, and the layers behind them."""

    def __init__(self, batch: int, frames: int, symbols: int, vocab: int) -> None:
        self.encoded = torch.randn(batch, frames, DIM, requires_grad=True)
        self.predicted = torch.randn(batch, symbols + 1, DIM, requires_grad=True)
        self.output, self.simple_encoder, self.simple_predictor = (nn.Linear(DIM, vocab) for _ in range(3))
        lengths, token_lengths = torch.full((batch,), frames), torch.full((batch,), symbols)
        self.target = Target(torch.randint(1, vocab, (batch, symbols)), lengths, token_lengths)

    def clear(self) -> None:
        """Forget the gradients."""
        self.encoded.grad = self.predicted.grad = None
        for layer in (self.output, self.simple_encoder, self.simple_predictor):
            layer.zero_grad(set_to_none=True)


def native(inputs: Inputs) -> Tensor:
    """The pruned loss in PyTorch alone."""

    def join(ranges: Tensor) -> Tensor:
        predictions = pruned.prune_predictions(inputs.predicted, ranges)
        return inputs.output((inputs.encoded[:, :, None] + predictions).tanh())

    am, lm = inputs.simple_encoder(inputs.encoded), inputs.simple_predictor(inputs.predicted)
    simple, kept = pruned_losses(Backend.native, am, lm, join, inputs.target, PRUNING)
    return (0.5 * simple + kept).sum()


def full(inputs: Inputs) -> Tensor:
    """The full loss, by torchaudio."""
    from chunkwise.losses.transducer import full_transducer_loss

    logits = inputs.output((inputs.encoded[:, :, None] + inputs.predicted[:, None]).tanh())
    return full_transducer_loss(logits, *inputs.target).sum()


def k2(inputs: Inputs) -> Tensor:
    """The pruned loss by k2's own functions, called as icefall's recipes do."""
    from chunkwise.losses.k2_pruned import k2

    tokens, lengths, token_lengths = inputs.target
    begin = torch.zeros_like(lengths)
    boundary = torch.stack((begin, begin, token_lengths, lengths), dim=1)
    simple, (px_grad, py_grad) = k2().rnnt_loss_smoothed(
        lm=inputs.simple_predictor(inputs.predicted), am=inputs.simple_encoder(inputs.encoded), symbols=tokens,
        termination_symbol=0, lm_only_scale=LM_SCALE, am_only_scale=0.0, boundary=boundary, reduction="sum",
        return_grad=True,
    )  # fmt: skip
    ranges = k2().get_rnnt_prune_ranges(px_grad, py_grad, boundary, PRUNING.prune_range)
    encoded, predicted = k2().do_rnnt_pruning(inputs.encoded, inputs.predicted, ranges)
    logits = inputs.output((encoded + predicted).tanh())
    return 0.5 * simple + k2().rnnt_loss_pruned(logits, tokens, ranges, 0, boundary, reduction="sum")


def resident(what: str) -> float:
    """This process's memory in MB: `VmRSS` now, `VmHWM` at its highest."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1024


def measure(forward: Pass, inputs: Inputs) -> dict[str, float]:
    """The memory of a first pass above what was there before, and the CPU seconds of a second, on the only thread."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # start VmHWM anew
    base = resident("VmRSS")
    forward().backward()
    memory = resident("VmHWM") - base
    inputs.clear()
    start = time.process_time()
    forward().backward()
    return {"seconds": time.process_time() - start, "megabytes": memory}


def main() -> None:
    """Measure one side."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    side = {"native": native, "full": full, "k2": k2}[sys.argv[1]]
    small = Inputs(2, 12, 4, 20)
    side(small).backward()  # what is loaded at first use counts for nobody
    inputs = Inputs(*map(int, sys.argv[2:]))
    print(json.dumps(measure(lambda: side(inputs), inputs)))


if __name__ == "__main__":
    main()
