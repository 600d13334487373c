"""The prediction networks: what the tokens so far say about the next one."""

from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from chunkwise.typing import BLANK


class PredictorKind(StrEnum):
    """The prediction networks."""

    stateless = "stateless"
    lstm = "lstm"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorConfig:
    """The prediction network's shape."""

    kind: PredictorKind = PredictorKind.stateless
    dim: int = 256
    context_size: int = 2  # stateless: how many tokens it sees
    num_layers: int = 1  # lstm
    dropout: float = 0.1

    def __post_init__(self) -> None:
        for name in ("dim", "context_size", "num_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"predictor.{name}={getattr(self, name)} must be 1 or more")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"predictor.dropout={self.dropout} must lie in [0, 1)")


@dataclass(frozen=True, slots=True)
class StatelessState:
    """The last `context_size - 1` tokens; blank stands for "none yet"."""

    tokens: Int[Tensor, "batch past"]


@dataclass(frozen=True, slots=True)
class LSTMState:
    """Hidden and cell vectors of every layer."""

    hidden: Float[Tensor, "batch layers dim"]
    cell: Float[Tensor, "batch layers dim"]


class StatelessPredictor(nn.Module):
    """A prediction network without recurrence: embeddings of the last tokens, mixed by a grouped convolution.

    Reference: Ghodsi et al. 2020, "RNN-Transducer with Stateless Prediction Network", ICASSP 2020.
    """

    def __init__(self, config: PredictorConfig, vocab_size: int) -> None:
        super().__init__()
        self.dim = config.dim
        self.past = config.context_size - 1
        # blank embeds to zero, so that a missing token (-1 in sherpa-onnx) and blank are the same
        self.embedding = nn.Embedding(vocab_size, config.dim, padding_idx=BLANK)
        groups = config.dim // 4 if config.dim % 4 == 0 else 1
        self.mix = nn.Conv1d(config.dim, config.dim, config.context_size, groups=groups, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: Int[Tensor, "batch symbols"]) -> Float[Tensor, "batch symbols_and_start dim"]:
        """One vector before each token and one after the last; the start symbol is put in front here."""
        return self._mixed(pad(tokens, (self.past + 1, 0), value=BLANK))

    def initial_state(self, batch: int) -> StatelessState:
        """No token yet."""
        device = self.embedding.weight.device
        return StatelessState(torch.full((batch, self.past), BLANK, dtype=torch.long, device=device))

    def stream(
        self, tokens: Int[Tensor, " batch"], state: StatelessState
    ) -> tuple[Float[Tensor, "batch dim"], StatelessState]:
        """The vector after each row's newest token; the first call feeds blank, the start symbol."""
        tokens = torch.cat((state.tokens, tokens[:, None]), dim=1)
        return self._mixed_once(tokens), StatelessState(tokens[:, tokens.shape[1] - self.past :])

    def _mixed(self, tokens: Int[Tensor, "batch context"]) -> Float[Tensor, "batch positions dim"]:
        embedded = self.dropout(self.embedding(tokens)).transpose(1, 2)
        return self.mix(embedded).transpose(1, 2).relu()

    def _mixed_once(self, tokens: Int[Tensor, "batch context"]) -> Float[Tensor, "batch dim"]:
        """The only position's vector, by one product per group: a convolution over it costs several times as much."""
        embedded = self.dropout(self.embedding(tokens)).unflatten(2, (self.mix.groups, -1)).permute(2, 0, 3, 1)
        weight = self.mix.weight.flatten(1).unflatten(0, (self.mix.groups, -1))
        return torch.bmm(embedded.flatten(2), weight.transpose(1, 2)).transpose(0, 1).flatten(1).relu()


class LSTMPredictor(nn.Module):
    """A recurrent prediction network.

    Reference: Graves 2012, "Sequence Transduction with Recurrent Neural Networks", arXiv:1211.3711.
    """

    def __init__(self, config: PredictorConfig, vocab_size: int) -> None:
        super().__init__()
        self.dim = config.dim
        self.embedding = nn.Embedding(vocab_size, config.dim, padding_idx=BLANK)
        self.lstm = nn.LSTM(config.dim, config.dim, config.num_layers, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: Int[Tensor, "batch symbols"]) -> Float[Tensor, "batch symbols_and_start dim"]:
        """One vector before each token and one after the last; the start symbol is put in front here."""
        embedded = self.dropout(self.embedding(pad(tokens, (1, 0), value=BLANK)))
        return self.dropout(self.lstm(embedded)[0])

    def initial_state(self, batch: int) -> LSTMState:
        """No token yet."""
        zeros = self.embedding.weight.new_zeros(batch, self.lstm.num_layers, self.dim)
        return LSTMState(zeros, zeros)

    def stream(self, tokens: Int[Tensor, " batch"], state: LSTMState) -> tuple[Float[Tensor, "batch dim"], LSTMState]:
        """The vector after each row's newest token; the first call feeds blank, the start symbol."""
        x = self.dropout(self.embedding(tokens))
        hidden, cell = [], []
        for layer, carried in enumerate(zip(state.hidden.unbind(1), state.cell.unbind(1), strict=True)):
            # one cell call: a single step of `nn.LSTM` costs several times as much
            x, memory = torch.lstm_cell(x, carried, *self.lstm.all_weights[layer])
            hidden.append(x)
            cell.append(memory)
        return self.dropout(x), LSTMState(torch.stack(hidden, dim=1), torch.stack(cell, dim=1))


Predictor = StatelessPredictor | LSTMPredictor


def build_predictor(config: PredictorConfig, vocab_size: int) -> Predictor:
    """The prediction network that the config names."""
    match config.kind:
        case PredictorKind.stateless:
            return StatelessPredictor(config, vocab_size)
        case PredictorKind.lstm:
            return LSTMPredictor(config, vocab_size)
