"""A tiny random recogniser, and what the worker processes of these tests do with it."""

import os
import time
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from lhotse import CutSet
from torch import Tensor
from training_workers import suffer

from chunkwise.audio.fbank import Fbank, FbankConfig
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.decoding.search import DecodingConfig, build_search
from chunkwise.evaluation.config import EvalConfig, EvalPath
from chunkwise.evaluation.evaluate import evaluate
from chunkwise.evaluation.recogniser import Recogniser
from chunkwise.evaluation.results import write_evaluation
from chunkwise.models.conformer import EncoderConfig
from chunkwise.models.context import ChunkContext
from chunkwise.models.joiner import JoinerConfig
from chunkwise.models.predictor import PredictorConfig
from chunkwise.models.transducer import Transducer, TransducerConfig
from chunkwise.text.tokenizer import Tokenizer
from chunkwise.training.distributed import open_world
from chunkwise.training.roll_call import RankError
from chunkwise.training.runtime import RuntimeConfig


def tiny_recogniser(tokenizer: Tokenizer) -> Recogniser:
    """Equal at every call, with a model of its own."""
    torch.manual_seed(3)
    small = EncoderConfig(d_model=16, num_layers=1, num_heads=2, feed_forward_dim=16)
    encoder = replace(small, kernel_size=5, subsampling_channels=4, dropout=0.5)
    parts = TransducerConfig(
        encoder=encoder,
        predictor=PredictorConfig(dim=16),
        joiner=JoinerConfig(dim=16),
        num_mels=20,
        vocab_size=tokenizer.vocab_size,
    )
    model = Transducer(parts)
    model.normalisation.set_statistics(torch.full((20,), -7.0), torch.full((20,), 3.0))
    fbank = Fbank(FbankConfig(num_mels=20, dither=0.1))
    return Recogniser(model, fbank, tokenizer, build_search(DecodingConfig(max_symbols_per_frame=2), model))


@dataclass(frozen=True, kw_only=True)
class Task:
    """An evaluation that a worker does, and what is to happen to one of its ranks."""

    tokenizer: Path
    cuts: Path
    folder: Path  # where rank 0 writes, and where each rank leaves what it heard of a fault
    config: EvalConfig
    fault: str = "none"  # or "dies", "stops", "dawdles"
    culprit: int = 1


@dataclass(frozen=True)
class FaultyRecogniser(Recogniser):
    """One rank meets its fault at its first batch; the others wait until it has come so far."""

    faults: list[str]
    delay_s: float
    begun: Path

    def search_features(
        self, features: Float[Tensor, "batch frames mels"], lengths: Int[Tensor, " batch"], context: ChunkContext
    ) -> list[Hypothesis]:
        if self.faults:
            self.begun.touch()
            suffer(self.faults.pop(), self.delay_s)
        end = time.monotonic() + 60
        while not self.begun.exists() and time.monotonic() < end:
            time.sleep(0.01)
        return super().search_features(features, lengths, context)


def evaluate_as_rank(runtime: RuntimeConfig, task: Task, times: int = 1) -> None:
    """Evaluate as one rank of the group; rank 0 writes the result of the last time."""
    context = ChunkContext(8, 2) if task.config.path is EvalPath.streaming else ChunkContext(None, None)
    recogniser = tiny_recogniser(Tokenizer.load(task.tokenizer))
    with open_world(runtime) as world:
        if task.fault != "none":
            parts = recogniser.model, recogniser.fbank, recogniser.tokenizer, recogniser.search
            faults = [task.fault] if world.rank == task.culprit else []
            recogniser = FaultyRecogniser(*parts, faults, runtime.timeout_s / 2, task.folder / "begun")
        cuts = CutSet.from_file(task.cuts)
        results = [evaluate(recogniser, cuts, context, task.config, world) for _ in range(times)]
        if world.is_main:
            write_evaluation(task.folder, "digits test, full", results[-1])


def evaluate_and_listen(runtime: RuntimeConfig, task: Task) -> None:
    """As `evaluate_as_rank`; every rank keeps what it was told in files of its own."""
    rank = os.environ["RANK"]
    with Path(task.folder, f"{rank}.err").open("w", encoding="utf-8", buffering=1) as heard, redirect_stderr(heard):
        try:
            evaluate_as_rank(runtime, task)
            Path(task.folder, f"{rank}.txt").write_text("done", encoding="utf-8")
        except (RankError, ValueError) as error:
            Path(task.folder, f"{rank}.txt").write_text(str(error), encoding="utf-8")
            time.sleep(2 if rank == "0" else 0)  # the meeting point stays until the others have asked
