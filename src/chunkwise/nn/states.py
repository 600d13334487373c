"""Rows of streaming states: several streams' states as one batch, a batch's state as several, and some of its rows."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

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


def take_rows(state: State, rows: Int[Tensor, " rows"]) -> State:
    """These rows of a batch, in this order, for a dataclass of tensors whose first axis is the batch."""
    return type(state)(*(getattr(state, field.name).index_select(0, rows) for field in fields(state)))


def put_rows(state: State, rows: Int[Tensor, " rows"], new: State) -> State:
    """The batch with `new` in these rows; `state` stays as it is.

    >>> from chunkwise.models.predictor import StatelessState
    >>> old, rows = StatelessState(torch.tensor([[1], [2], [3]])), torch.tensor([2, 0])
    >>> put_rows(old, rows, StatelessState(take_rows(old, rows).tokens * 10)).tokens.tolist()
    [[10], [2], [30]]
    """
    columns = ((getattr(state, field.name), getattr(new, field.name)) for field in fields(state))
    return type(state)(*(old.index_copy(0, rows, part) for old, part in columns))
