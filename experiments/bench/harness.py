"""What every benchmark here shares: interleaved rounds, ratios inside a round, one table and one JSON file."""

import json
import platform
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

RESULTS = Path("runs/bench")

Rates = dict[str, list[float]]
"""By side, what was measured in each round."""


def interleaved(sides: Mapping[str, Callable[[], float]], rounds: int, warm_up: bool = True) -> Rates:
    """Measure every side once per round, in an order that turns, after one round to warm up that does not count.

    Machines are shared and their speed drifts: only figures of the same round are compared.
    """
    names = list(sides)
    rates: Rates = {name: [] for name in names}
    for number in range(-1 if warm_up else 0, rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            rate = sides[name]()
            if number >= 0:
                rates[name].append(rate)
    return rates


def ratio(rates: Rates, one: str, other: str) -> float:
    """The median over rounds of `one / other`."""
    return statistics.median(a / b for a, b in zip(rates[one], rates[other], strict=True))


def report(
    name: str, unit: str, rates: Rates, ratios: Mapping[str, float], limits: Mapping[str, float] | None = None
) -> None:
    """Print the table and write `runs/bench/NAME.json`; a ratio with a limit is told to be within it or not.

    A limit missed is no failure of the command: on a busy machine it may be the machine.
    """
    limits = limits or {}
    print(f"\n{name} ({unit}; {torch.get_num_threads()} threads, torch {torch.__version__})")
    for side, values in rates.items():
        low, median, high = min(values), statistics.median(values), max(values)
        print(f"  {side:<28} {median:10.1f}   ({low:.1f} to {high:.1f})")
    for what, value in ratios.items():
        print(f"  {what:<28} {value:10.3f}{verdict(value, limits.get(what))}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    content = {
        "command": " ".join(["python", *sys.argv]),
        "unit": unit,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "rates": rates,
        "ratios": dict(ratios),
        "limits": dict(limits),
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(f"  {path}")


def verdict(value: float, limit: float | None) -> str:
    """What is said of a value beside its limit.

    >>> verdict(0.3, 0.5), verdict(0.6, 0.5), verdict(0.6, None)
    ('   within 0.5', '   MISSES 0.5', '')
    """
    if limit is None:
        return ""
    return f"   {'within' if value <= limit else 'MISSES'} {limit:g}"
