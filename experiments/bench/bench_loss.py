"""Joiner and transducer loss, forward and backward: native pruned against torchaudio's full loss and real k2's pruned.

A joiner of 512, one thread, every measurement in a fresh process; k2 in `.venv-k2` with the torch that it fits. Time is
that of the CPU, which others on the machine disturb least; memory is what a pass needs above the memory that inputs,
weights and libraries take.

    python experiments/bench/bench_loss.py
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from harness import Rates, interleaved, ratio, report

ROUNDS = 3
SHAPES = {"8x375x60x500": (8, 375, 60, 500), "4x250x40x1000": (4, 250, 40, 1000)}
"""Utterances, encoder frames, symbols, vocabulary."""
ROOT = Path(__file__).parents[2]
SIDES = {"native": sys.executable, "full": sys.executable, "k2": str(ROOT / ".venv-k2" / "bin" / "python")}


def side(name: str, shape: tuple[int, ...], megabytes: list[float]) -> Callable[[], float]:
    """Passes per CPU minute in a fresh process; its memory goes to `megabytes`."""
    command = [SIDES[name], str(Path(__file__).with_name("loss_side.py")), name, *map(str, shape)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

    def measure() -> float:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        result = json.loads(done.stdout.splitlines()[-1])
        megabytes.append(result["megabytes"])
        return 60 / result["seconds"]

    return measure


def main() -> None:
    """Measure and report."""
    torch.set_num_threads(1)
    for label, shape in SHAPES.items():
        memory: Rates = {name: [] for name in SIDES}
        rates = interleaved({name: side(name, shape, memory[name]) for name in SIDES}, ROUNDS)
        ratios = {
            "time: native / torchaudio full": ratio(rates, "full", "native"),  # of times: the inverse of the rates
            "memory: native / torchaudio full": ratio(memory, "native", "full"),
            "time: native / k2 pruned": ratio(rates, "k2", "native"),
            "memory: native / k2 pruned": ratio(memory, "native", "k2"),
        } | {f"megabytes: {name}": statistics.median(memory[name]) for name in SIDES}
        report(f"loss_{label}", f"passes per CPU minute, {label}", rates, ratios)


if __name__ == "__main__":
    main()
