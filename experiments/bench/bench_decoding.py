"""Greedy transducer search: this one against SpeechBrain's over the same weights, and a batch against utterances alone.

Sixteen utterances of 375 encoder frames (15 s) and about 60 tokens each, 500 units, one thread; encoder, predictor and
joiner of 256, this project's default, then of 512, the size of the LSTM in SpeechBrain's recipe. (The smaller they are,
the more the calls count.) SpeechBrain's searcher has only recurrent predictors; it is given our LSTM, and must find the
same tokens. The stateless predictor of the same size is measured against it too.

    python experiments/bench/bench_decoding.py
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from harness import interleaved, ratio, report
from speechbrain.decoders.transducer import TransducerBeamSearcher  # pyright: ignore[reportMissingImports]
from speechbrain.nnet.RNN import LSTM  # pyright: ignore[reportMissingImports]
from speechbrain.nnet.transducer.transducer_joint import Transducer_joint  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn

from chunkwise.decoding.greedy import GreedySearch
from chunkwise.decoding.search import decode
from chunkwise.models.conformer import EncoderConfig
from chunkwise.models.joiner import JoinerConfig
from chunkwise.models.predictor import LSTMPredictor, PredictorConfig, PredictorKind
from chunkwise.models.transducer import Transducer, TransducerConfig

ROUNDS = 7
BATCH, FRAMES, TOKENS, VOCAB = 16, 375, 60, 500
DIMS = (256, 512)
MAX_SYMBOLS = 6
"""SpeechBrain allows a frame five symbols more than the first."""
LIMITS = {
    "LSTM / SpeechBrain": 0.5,
    "stateless / SpeechBrain": 0.2,
    "LSTM: batch / one by one": 0.5,
    "stateless: batch / one by one": 0.5,
}

Tokens = list[list[int]]
"""Of each utterance."""


@dataclass(frozen=True, slots=True)
class Ours:
    """Chunkwise's search over random weights that emit about `TOKENS` tokens per utterance."""

    model: Transducer
    encoded: Tensor

    @classmethod
    def of(cls, kind: PredictorKind, encoded: Tensor) -> "Ours":
        """A model of this predictor; blank is made likely enough by bisection."""
        torch.manual_seed(0)
        dim = encoded.shape[2]
        parts = TransducerConfig(
            encoder=EncoderConfig(d_model=dim, num_layers=1),
            predictor=PredictorConfig(kind=kind, dim=dim),
            joiner=JoinerConfig(dim=dim),
            num_mels=80,
            vocab_size=VOCAB,
        )
        ours = cls(Transducer(parts).eval(), encoded)
        with torch.no_grad():
            ours.model.joiner.output.weight.mul_(4.0)  # scores far enough apart that no rounding decides
            bias, low, high = ours.model.joiner.output.bias, 0.0, 40.0
            for _ in range(12):
                bias[0] = (low + high) / 2
                few = sum(map(len, ours.batched())) < BATCH * TOKENS
                low, high = (low, float(bias[0])) if few else (float(bias[0]), high)
        return ours

    def batched(self) -> Tokens:
        """All utterances in one batch."""
        return self.search(self.encoded)

    def one_by_one(self) -> Tokens:
        """Each utterance alone."""
        return [tokens for row in self.encoded.split(1) for tokens in self.search(row)]

    def search(self, encoded: Tensor) -> Tokens:
        """The tokens of these encoder frames."""
        lengths = torch.full((len(encoded),), encoded.shape[1])
        return [hypothesis.tokens for hypothesis in decode(GreedySearch(self.model, MAX_SYMBOLS), encoded, lengths)]


class SpeechBrain:
    """SpeechBrain's searcher of beam 1, which is greedy, over the weights of a model with an LSTM."""

    def __init__(self, model: Transducer, encoded: Tensor) -> None:
        self.encoded, self.joiner = encoded, model.joiner
        assert isinstance(model.predictor, LSTMPredictor)
        dim = encoded.shape[2]
        lstm = LSTM(dim, input_size=dim)
        lstm.rnn.load_state_dict(model.predictor.lstm.state_dict())
        self.searcher = TransducerBeamSearcher(
            [model.predictor.embedding, lstm.eval(), self.joiner.project_predictor],
            Transducer_joint(joint="sum", nonlinearity=nn.Tanh),
            [self.joiner.output],
            blank_id=0,
            beam_size=1,
        )

    def batched(self) -> Tokens:
        """All utterances in one batch."""
        return self.searcher(self.joiner.project_encoder(self.encoded))[0]


def utterances_per_second(search: Callable[[], Tokens]) -> Callable[[], float]:
    """A side of the benchmark."""

    def rate() -> float:
        start = time.perf_counter()
        search()
        return BATCH / (time.perf_counter() - start)

    return rate


def main() -> None:
    """Measure both sizes."""
    torch.set_num_threads(1)
    for dim in DIMS:
        measure(dim)


def measure(dim: int) -> None:
    """Check that the sides find the same tokens; measure and report."""
    encoded = torch.randn(BATCH, FRAMES, dim, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        lstm, stateless = Ours.of(PredictorKind.lstm, encoded), Ours.of(PredictorKind.stateless, encoded)
        peer = SpeechBrain(lstm.model, encoded)
        assert peer.batched() == lstm.batched() == lstm.one_by_one()
        assert stateless.batched() == stateless.one_by_one()
        sides = {
            "LSTM, batch": lstm.batched,
            "SpeechBrain's LSTM, batch": peer.batched,
            "stateless, batch": stateless.batched,
            "LSTM, one by one": lstm.one_by_one,
            "stateless, one by one": stateless.one_by_one,
        }
        rates = interleaved({name: utterances_per_second(search) for name, search in sides.items()}, ROUNDS)
        emitted = {
            f"tokens per utterance, {kind}": sum(map(len, ours.batched())) / BATCH
            for kind, ours in (("LSTM", lstm), ("stateless", stateless))
        }
    ratios = {
        "LSTM / SpeechBrain": ratio(rates, "SpeechBrain's LSTM, batch", "LSTM, batch"),  # of times
        "stateless / SpeechBrain": ratio(rates, "SpeechBrain's LSTM, batch", "stateless, batch"),
        "LSTM: batch / one by one": ratio(rates, "LSTM, one by one", "LSTM, batch"),
        "stateless: batch / one by one": ratio(rates, "stateless, one by one", "stateless, batch"),
    }
    report(f"decoding_{dim}", "utterances per second", rates, ratios | emitted, LIMITS)


if __name__ == "__main__":
    main()
