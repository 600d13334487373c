"""One rank of the benchmark of evaluation, in a module that new processes can import.

The recogniser is that of the digits recipe with random weights; blank is made likely enough that an utterance gets
about as many tokens as a transcript has.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from lhotse import CutSet

from chunkwise.audio.fbank import Fbank
from chunkwise.cli import assembly
from chunkwise.config import TrainConfig
from chunkwise.data.corpora.prepare import prepare_corpus
from chunkwise.data.loading import BadAudio, SpeechDataset, listed, speaker, transcript
from chunkwise.decoding.search import DecodingConfig, build_search
from chunkwise.evaluation.config import EvalConfig
from chunkwise.evaluation.evaluate import evaluate
from chunkwise.evaluation.recogniser import Recogniser
from chunkwise.evaluation.tally import ScoredUtterance, Tally
from chunkwise.models.context import FULL
from chunkwise.nn.linear import pack_weights
from chunkwise.text.tokenizer import train_tokenizer
from chunkwise.training.distributed import World, open_world
from chunkwise.training.runtime import RuntimeConfig
from chunkwise.typing import BLANK

RESULTS, TOKENS = 100_000, 18


@dataclass(slots=True)
class Stopwatch:
    """Seconds between two meetings of all ranks, by what was done."""

    world: World
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Start together, end when the last has ended."""
        self.world.barrier(f"before {what}")
        start = time.perf_counter()
        yield
        self.world.barrier(f"after {what}")
        self.seconds[what] = time.perf_counter() - start


def rank_seconds(runtime: RuntimeConfig, config: TrainConfig, copies: int) -> dict[str, float]:
    """What evaluation of so many copies of the test set takes, its scoring and gathering, and gathering many results.

    Scoring and gathering are done a second time, by themselves, with all ranks starting together: inside the
    evaluation their time could not be told from waiting for the slower rank.
    """
    with open_world(runtime) as world, torch.random.fork_rng():
        cuts = repeated(prepare_corpus(config.data).splits["test"], copies)
        recogniser, watch = random_recogniser(config, cuts), Stopwatch(world)
        with watch.timing("evaluation"):
            evaluation = evaluate(recogniser, cuts, FULL, EvalConfig(), world)
        told = world.share_text(json.dumps([[row.id, row.hypothesis] for row in evaluation.utterances or ()]))
        by_id = {cut.id: cut for cut in listed(cuts)}
        mine = json.loads(told)[world.rank :: world.size]
        references = [transcript(by_id[id]) for id, _ in mine]
        speakers = [speaker(by_id[id]) for id, _ in mine]
        tally = Tally()
        with watch.timing("scoring"):
            tally.add_texts([id for id, _ in mine], references, [text for _, text in mine], speakers)
        with watch.timing("gathering"):
            again = tally.merge(recogniser.fbank.config.sample_rate_hz, world)
        assert (again.counts, again.utterances) == (evaluation.counts, evaluation.utterances)
        watch.seconds["gathering results"] = gather_seconds(world)
        characters = sum(len(row.hypothesis) for row in evaluation.utterances or ())
    return watch.seconds | {"audio": evaluation.audio_s, "characters": characters / evaluation.counts.utterances}


def gather_seconds(world: World) -> float:
    """How long it takes to gather `RESULTS` lines of results, spread over the ranks."""
    numbers = range(world.rank, RESULTS, world.size)
    row = ("nine eight seven six five four", "nine ate seven six five four", 1, 0, 0, "speaker")
    lines = [ScoredUtterance(f"digits-test-{number:06}", *row).to_line() for number in numbers]
    watch = Stopwatch(world)
    with watch.timing("results"):
        gathered = world.gather_texts(lines)
    assert gathered is None or len(set(gathered)) == RESULTS
    return watch.seconds["results"]


def repeated(cuts: CutSet, copies: int) -> CutSet:
    """Every cut so many times, under ids of its own."""
    return CutSet.from_cuts(cut.with_id(f"{cut.id}-{copy}") for copy in range(copies) for cut in listed(cuts))


def random_recogniser(config: TrainConfig, cuts: CutSet) -> Recogniser:
    """The recipe's recogniser with weights that are the same on every rank."""
    torch.manual_seed(0)
    few = listed(cuts)[:8]
    path = Path(config.data.prepared_dir) / f"evaluation-{time.time_ns()}.model"
    tokenizer = train_tokenizer([transcript(cut) for cut in listed(cuts)[:400]], config.tokenizer, path)
    path.unlink()
    model = assembly.build_model(config, tokenizer.vocab_size).eval()
    pack_weights(model)
    fbank = Fbank(config.features).eval()
    recogniser = Recogniser(model, fbank, tokenizer, build_search(DecodingConfig(), model))
    batch = SpeechDataset(tokenizer, config.features.sample_rate_hz, BadAudio.refuse)[CutSet.from_cuts(few)]
    with torch.no_grad():
        model.joiner.output.weight.mul_(8.0)
        bias, low, high = model.joiner.output.bias, -20.0, 60.0
        for _ in range(14):
            bias[BLANK] = (low + high) / 2
            tokens = sum(len(hypothesis.tokens) for hypothesis in recogniser.recognise(batch, FULL))
            low, high = (low, float(bias[BLANK])) if tokens < TOKENS * len(few) else (float(bias[BLANK]), high)
    return recogniser
