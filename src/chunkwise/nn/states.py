"""Rows of streaming states: several streams' states as one batch, and a batch's state as several."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

import torch

State = TypeVar("State", bound=Any)


def join_rows(states: Sequence[State]) -> State:
    """One batch of several, for a dataclass of tensors whose first axis is the batch.

    >>> from chunkwise.nn.subsampling import SubsamplingState
    >>> one = SubsamplingState(torch.zeros(1, 1, 1, 8), torch.zeros(1, 4, 1, 4))
    >>> join_rows([one, one, one]).features.shape
    torch.Size([3, 1, 1, 8])
    """
    if len(states) == 1:
        return states[0]
    kind = type(states[0])
    columns = ([getattr(state, field.name) for state in states] for field in fields(kind))
    return kind(*map(torch.cat, columns))


def split_rows(state: State) -> list[State]:
    """The inverse of `join_rows`; each row has memory of its own, so that it does not keep its old batch alive."""
    kind = type(state)
    columns = [getattr(state, field.name).split(1) for field in fields(kind)]
    return [kind(*(part.clone() for part in row)) for row in zip(*columns, strict=True)]
