"""Evaluation on two ranks against one, what of it is scoring and gathering, and gathering 100,000 results.

The embedded test set, repeated until one rank has work for `--seconds`, on the recogniser of the digits recipe; one
thread per rank, so that two ranks need two idle cores.

    python experiments/bench/bench_evaluation.py
    python experiments/bench/bench_evaluation.py --seconds 60 --rounds 1
"""

import argparse
import math
import statistics
from collections.abc import Callable

from evaluation_side import rank_seconds
from harness import interleaved, ratio, report
from hydra import compose, initialize_config_dir

from chunkwise.config import TrainConfig, conf_dir, read, register
from chunkwise.data.corpora.prepare import prepare_corpus
from chunkwise.training.launching import launch
from chunkwise.training.runtime import Device, RuntimeConfig

LIMITS = {"wall time: 2 ranks / 1": 0.55, "scoring and gathering": 0.01, "100,000 results, seconds": 1.0}


class Bench:
    """Evaluation of so many copies of the test set, and what each one took."""

    def __init__(self, config: TrainConfig, copies: int) -> None:
        self.config, self.copies = config, copies
        self.taken: dict[int, list[dict[str, float]]] = {1: [], 2: []}

    def run(self, processes: int) -> float:
        """Seconds of audio per second."""
        runtime = RuntimeConfig(processes=processes, threads=1, device=Device.cpu)
        seconds = launch(runtime, rank_seconds, runtime, self.config, self.copies)
        self.taken[processes].append(seconds)
        return seconds["audio"] / seconds["evaluation"]

    def side(self, processes: int) -> Callable[[], float]:
        """A side of the benchmark."""
        return lambda: self.run(processes)

    def median(self, processes: int, of: Callable[[dict[str, float]], float]) -> float:
        """The median of what the runs on so many ranks took."""
        return statistics.median(map(of, self.taken[processes]))


def share(seconds: dict[str, float]) -> float:
    """How much of an evaluation's time scoring and gathering take."""
    return (seconds["scoring"] + seconds["gathering"]) / seconds["evaluation"]


def digits_config() -> TrainConfig:
    """The digits recipe, with the embedded test set prepared."""
    register()
    overrides = [
        "experiment=digits_streaming", "runtime=cpu", "data.train_utterances=400", "data.dev_utterances=2",
        "data.prepared_dir=runs/bench/prepared",
    ]  # fmt: skip
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        config = read(TrainConfig, compose("train", overrides))
    prepare_corpus(config.data)
    return config


def main() -> None:
    """Find how many copies make the work asked for; measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="of work on one rank")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    bench = Bench(digits_config(), 4)
    for _ in range(2):  # the first is slower than all that follow
        bench.run(1)
    bench.copies = max(1, math.ceil(1.1 * bench.copies * arguments.seconds / bench.taken[1][-1]["evaluation"]))
    bench.taken[1].clear()
    rates = interleaved({"1 rank": bench.side(1), "2 ranks": bench.side(2)}, arguments.rounds, warm_up=False)
    ratios = {
        "wall time: 2 ranks / 1": ratio(rates, "1 rank", "2 ranks"),
        "scoring and gathering": max(bench.median(1, share), bench.median(2, share)),
        "100,000 results, seconds": bench.median(2, lambda seconds: seconds["gathering results"]),
        "seconds on 1 rank": bench.median(1, lambda seconds: seconds["evaluation"]),
        "copies of the test set": float(bench.copies),
        "characters per utterance": bench.taken[1][0]["characters"],
    }
    report("evaluation", "seconds of audio per second", rates, ratios, LIMITS)


if __name__ == "__main__":
    main()
