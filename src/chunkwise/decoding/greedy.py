"""Greedy search over a batch, each row at its own frame."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.models.transducer import Transducer
from chunkwise.nn.states import join_rows, put_rows, split_rows, take_rows
from chunkwise.typing import BLANK

LOOKAHEAD_FRAMES = 8
"""Encoder frames joined at once in search of the next token: more means fewer, larger steps and the same results."""


@dataclass(frozen=True, slots=True)
class GreedyState:
    """What greedy search carries from piece to piece, for each row."""

    predictor: Any  # the predictor's own state
    prediction: Float[Tensor, "batch joiner_dim"]  # the joiner's view of the tokens so far
    frames: Int[Tensor, " batch"]  # encoder frames consumed
    scores: Float[Tensor, " batch"]
    tokens: list[list[int]]
    token_frames: list[list[int]]


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Where each row that is not through stands within a piece."""

    rows: Int[Tensor, " active"]  # of the batch
    position: Int[Tensor, " active"]
    lengths: Int[Tensor, " active"]
    emitted: Int[Tensor, " active"]  # at this very frame
    scores: Float[Tensor, " active"]


class GreedySearch:
    """The most probable arc at each step: the best token is emitted, blank moves on to the next frame.

    Between two tokens of a row nothing changes but the encoder frame, so a step joins the row's
    prediction with several frames at once and jumps to the first that emits. Rows do not wait for
    each other: a step costs the same wherever they are, and the host asks twice per step which rows go
    on and which emit, never per symbol. After `max_symbols_per_frame` tokens a frame can only take blank.

    Reference: Galvez et al. 2024, "Label-Looping: Highly Efficient Decoding for Transducers", arXiv:2406.06220.
    """

    def __init__(self, model: Transducer, max_symbols_per_frame: int) -> None:
        self.predictor: Any = model.predictor  # of either kind; each knows its own state
        self.joiner = model.joiner
        self.max_symbols_per_frame = max_symbols_per_frame

    @torch.inference_mode()
    def initial_state(self, batch: int) -> GreedyState:
        """Nothing heard yet; the predictor has seen the start symbol."""
        device = self.joiner.project_encoder.weight.device
        start = torch.full((batch,), BLANK, device=device)
        predicted, predictor = self.predictor.stream(start, self.predictor.initial_state(batch))
        return GreedyState(
            predictor=predictor,
            prediction=self.joiner.project_predictor(predicted),
            frames=torch.zeros(batch, dtype=torch.long, device=device),
            scores=torch.zeros(batch, device=device),
            tokens=[[] for _ in range(batch)],
            token_frames=[[] for _ in range(batch)],
        )

    @staticmethod
    def join(states: Sequence[GreedyState]) -> GreedyState:
        """One batch of several."""
        return GreedyState(
            predictor=join_rows([state.predictor for state in states]),
            prediction=torch.cat([state.prediction for state in states]),
            frames=torch.cat([state.frames for state in states]),
            scores=torch.cat([state.scores for state in states]),
            tokens=[row for state in states for row in state.tokens],
            token_frames=[row for state in states for row in state.token_frames],
        )

    @staticmethod
    def split(state: GreedyState) -> list[GreedyState]:
        """Each row as a batch of one."""
        rows = zip(
            split_rows(state.predictor),
            state.prediction.clone().split(1),
            state.frames.split(1),
            state.scores.split(1),
            state.tokens,
            state.token_frames,
            strict=True,
        )
        return [
            GreedyState(predictor, prediction, frames, scores, [tokens], [token_frames])
            for predictor, prediction, frames, scores, tokens, token_frames in rows
        ]

    def hypotheses(self, state: GreedyState) -> list[Hypothesis]:
        """Each row's hypothesis so far."""
        rows = zip(state.tokens, state.token_frames, state.scores.tolist(), strict=True)
        return [Hypothesis(list(tokens), list(frames), score) for tokens, frames, score in rows]

    @torch.inference_mode()
    def stream(
        self,
        encoded: Float[Tensor, "batch encoder_frames d_model"],
        lengths: Int[Tensor, " batch"],
        state: GreedyState,
    ) -> GreedyState:
        """The state after each row's next `lengths` encoder frames."""
        projected = self.joiner.project_encoder(encoded)
        begin, lengths, scores = state.frames, lengths.long(), state.scores.clone()
        start = torch.zeros_like(begin)
        cursor = _Cursor(torch.arange(len(begin), device=begin.device), start, lengths, start, state.scores)
        events = []
        while len(active := (cursor.position < cursor.lengths).nonzero()[:, 0]):
            if len(active) < len(cursor.rows):
                scores.index_copy_(0, cursor.rows, cursor.scores)
                cursor = take_rows(cursor, active)
            cursor, emitting, tokens = self._advance(projected, state.prediction, cursor)
            if len(emitting):
                rows = cursor.rows.index_select(0, emitting)
                at = begin.index_select(0, rows) + cursor.position.index_select(0, emitting)
                events.append(torch.stack((rows, tokens, at)))
                state = self._predict(state, rows, tokens)
        scores.index_copy_(0, cursor.rows, cursor.scores)
        state = replace(state, frames=begin + lengths, scores=scores)
        return _with_events(state, torch.cat(events, dim=1).T.tolist()) if events else state

    def _advance(
        self,
        projected: Float[Tensor, "batch encoder_frames joiner_dim"],
        prediction: Float[Tensor, "batch joiner_dim"],
        cursor: _Cursor,
    ) -> tuple[_Cursor, Int[Tensor, " emitting"], Int[Tensor, " emitting"]]:
        """The cursor at each row's next emission or past the frames looked at; which of its rows emit what."""
        num_frames = projected.shape[1]
        width = min(LOOKAHEAD_FRAMES, num_frames)
        ahead = torch.arange(width, device=projected.device)
        window = cursor.position[:, None] + ahead
        exists = window < cursor.lengths[:, None]
        flat = (cursor.rows[:, None] * num_frames + window.clamp_(max=num_frames - 1)).flatten()
        frames = projected.flatten(0, 1).index_select(0, flat).unflatten(0, (-1, width))
        logits = self.joiner(frames, prediction.index_select(0, cursor.rows)[:, None]).float()

        best_score, best = logits.max(dim=-1)
        emits = exists & (best != BLANK)
        emits[:, 0] &= cursor.emitted < self.max_symbols_per_frame
        jump = torch.where(emits, ahead, width).amin(dim=1)
        passed = exists & (ahead <= jump[:, None])
        normaliser = best_score + (logits - best_score[..., None]).exp_().sum(dim=-1).log_()
        score = torch.where(emits, best_score, logits[..., BLANK]) - normaliser
        found = jump < width
        emitting = found.nonzero()[:, 0]
        cursor = replace(
            cursor,
            position=cursor.position + jump,
            emitted=torch.where(jump > 0, 0, cursor.emitted) + found,
            scores=cursor.scores + torch.where(passed, score, 0.0).sum(dim=1),
        )
        return cursor, emitting, best[emitting, jump[emitting]]

    def _predict(
        self, state: GreedyState, rows: Int[Tensor, " emitting"], tokens: Int[Tensor, " emitting"]
    ) -> GreedyState:
        """Feed the emitted tokens to the predictor, in their rows only."""
        predicted, predictor = self.predictor.stream(tokens, take_rows(state.predictor, rows))
        prediction = self.joiner.project_predictor(predicted)
        return replace(
            state,
            predictor=put_rows(state.predictor, rows, predictor),
            prediction=state.prediction.index_copy(0, rows, prediction),
        )


def _with_events(state: GreedyState, events: list[list[int]]) -> GreedyState:
    """The state with (row, token, frame) events added; the old state's lists stay as they are."""
    tokens = [list(row) for row in state.tokens]
    frames = [list(row) for row in state.token_frames]
    for row, token, frame in events:
        tokens[row].append(token)
        frames[row].append(frame)
    return replace(state, tokens=tokens, token_frames=frames)
