"""The choice of a search and its config."""

from collections.abc import Callable

import pytest
import torch

from chunkwise.decoding.beam import BeamSearch
from chunkwise.decoding.greedy import GreedySearch
from chunkwise.decoding.search import DecodingConfig, DecodingKind, build_search, decode
from chunkwise.models.transducer import Transducer


@pytest.mark.parametrize(("kind", "search"), [(DecodingKind.greedy, GreedySearch), (DecodingKind.beam, BeamSearch)])
def test_the_config_chooses_the_search(
    kind: DecodingKind, search: type, small_model: Callable[..., Transducer]
) -> None:
    built = build_search(DecodingConfig(kind=kind, max_symbols_per_frame=2, beam_size=3), small_model())
    assert isinstance(built, search)
    assert built.max_symbols_per_frame == 2


@pytest.mark.parametrize("kind", DecodingKind)
def test_no_frames_give_no_tokens(kind: DecodingKind, small_model: Callable[..., Transducer]) -> None:
    search = build_search(DecodingConfig(kind=kind), small_model(blank_bias=-100.0))
    for num_frames in (0, 4):
        hypotheses = decode(search, torch.randn(2, num_frames, 8), torch.tensor([0, 0]))
        assert [(hypothesis.tokens, hypothesis.score) for hypothesis in hypotheses] == [([], 0.0)] * 2


def test_impossible_values_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"decoding\.max_symbols_per_frame=0 must be 1 or more"):
        DecodingConfig(max_symbols_per_frame=0)
    with pytest.raises(ValueError, match=r"decoding\.beam_size=0 must be 1 or more"):
        DecodingConfig(beam_size=0)
