"""What every search offers, and the choice between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from chunkwise.decoding.beam import BeamSearch
from chunkwise.decoding.greedy import GreedySearch
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.models.transducer import Transducer

SearchState = TypeVar("SearchState")


class DecodingKind(StrEnum):
    """The searches."""

    greedy = "greedy"
    beam = "beam"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingConfig:
    """How encoder frames become tokens."""

    kind: DecodingKind = DecodingKind.greedy
    max_symbols_per_frame: int = 5
    beam_size: int = 4  # beam

    def __post_init__(self) -> None:
        if self.max_symbols_per_frame < 1:
            raise ValueError(
                f"decoding.max_symbols_per_frame={self.max_symbols_per_frame} must be 1 or more, "
                "or nothing is ever emitted; try 5"
            )
        if self.beam_size < 1:
            raise ValueError(f"decoding.beam_size={self.beam_size} must be 1 or more; try 4")


@runtime_checkable
class Search(Protocol[SearchState]):
    """A search over a batch of utterances or sessions, each row on its own."""

    def initial_state(self, batch: int) -> SearchState:
        """Nothing heard yet."""
        ...

    def stream(
        self,
        encoded: Float[Tensor, "batch encoder_frames d_model"],
        lengths: Int[Tensor, " batch"],
        state: SearchState,
    ) -> SearchState:
        """The state after each row's next `lengths` encoder frames; how they are cut into pieces has no effect."""
        ...

    def join(self, states: Sequence[SearchState]) -> SearchState:
        """One batch of several."""
        ...

    def split(self, state: SearchState) -> list[SearchState]:
        """Each row as a batch of one."""
        ...

    def hypotheses(self, state: SearchState) -> list[Hypothesis]:
        """The best hypothesis of each row so far."""
        ...


def build_search(config: DecodingConfig, model: Transducer) -> GreedySearch | BeamSearch:
    """The search that the config names."""
    match config.kind:
        case DecodingKind.greedy:
            return GreedySearch(model, config.max_symbols_per_frame)
        case DecodingKind.beam:
            return BeamSearch(model, config.beam_size, config.max_symbols_per_frame)


def decode(
    search: Search, encoded: Float[Tensor, "batch encoder_frames d_model"], lengths: Int[Tensor, " batch"]
) -> list[Hypothesis]:
    """The best hypothesis of each whole utterance of a padded batch."""
    return search.hypotheses(search.stream(encoded, lengths, search.initial_state(len(encoded))))
