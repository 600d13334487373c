"""Time-synchronous beam search that adds up the alignments of equal token sequences."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.models.transducer import Transducer
from chunkwise.typing import BLANK


@dataclass(slots=True, eq=False)
class _Prefix:
    """What the predictor says after a token sequence; computed once, kept as long as a hypothesis needs it."""

    predictor: Any  # the predictor's own state
    prediction: Float[Tensor, "1 joiner_dim"]
    children: dict[int, "_Prefix"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Beam:
    """One token sequence, the sum over its alignments so far, and the emission frames of the best of them."""

    tokens: tuple[int, ...]
    frames: tuple[int, ...]
    score: float
    path_score: float  # the best alignment alone
    prefix: _Prefix  # of `tokens`


@dataclass(frozen=True, slots=True)
class BeamState:
    """What beam search carries from piece to piece, for each row: encoder frames consumed, beams from best to worst."""

    frames: list[int]
    beams: list[list[_Beam]]


class BeamSearch:
    """All frames in step: each hypothesis of a frame ends it by blank, or goes on in it with one more token.

    Blank is always among the choices and a frame has at most `max_symbols_per_frame` rounds, so every
    hypothesis has consumed every frame, whatever the model says. Alignments of one token sequence are
    log-added; rounds that could no longer reach the best `beam_size` are not run.

    Reference: Saon et al. 2020, "Alignment-Length Synchronous Decoding for RNN Transducer", ICASSP 2020,
    section 2 (time-synchronous decoding).
    """

    def __init__(self, model: Transducer, beam_size: int, max_symbols_per_frame: int) -> None:
        self.predictor: Any = model.predictor  # of either kind; each knows its own state
        self.joiner = model.joiner
        self.beam_size = beam_size
        self.max_symbols_per_frame = max_symbols_per_frame

    @torch.inference_mode()
    def initial_state(self, batch: int) -> BeamState:
        """Nothing heard yet: the empty sequence in every row."""
        root = self._prefix(BLANK, self.predictor.initial_state(1))
        return BeamState([0] * batch, [[_Beam((), (), 0.0, 0.0, root)] for _ in range(batch)])

    @staticmethod
    def join(states: Sequence[BeamState]) -> BeamState:
        """One batch of several."""
        return BeamState(
            [n for state in states for n in state.frames], [row for state in states for row in state.beams]
        )

    @staticmethod
    def split(state: BeamState) -> list[BeamState]:
        """Each row as a batch of one."""
        return [BeamState([frames], [beams]) for frames, beams in zip(state.frames, state.beams, strict=True)]

    def hypotheses(self, state: BeamState) -> list[Hypothesis]:
        """The best hypothesis of each row so far."""
        return [beams[0] for beams in self.n_best(state)]

    def n_best(self, state: BeamState) -> list[list[Hypothesis]]:
        """All hypotheses that each row kept, from best to worst."""
        return [[Hypothesis(list(b.tokens), list(b.frames), b.score) for b in beams] for beams in state.beams]

    @torch.inference_mode()
    def stream(
        self,
        encoded: Float[Tensor, "batch encoder_frames d_model"],
        lengths: Int[Tensor, " batch"],
        state: BeamState,
    ) -> BeamState:
        """The state after each row's next `lengths` encoder frames."""
        projected, beams = self.joiner.project_encoder(encoded), list(state.beams)
        for row, length in enumerate(lengths.tolist()):
            for offset in range(length):
                beams[row] = self._frame(projected[row, offset], state.frames[row] + offset, beams[row])
        return BeamState([frames + n for frames, n in zip(state.frames, lengths.tolist(), strict=True)], beams)

    def _frame(self, encoder_projection: Float[Tensor, " joiner_dim"], frame: int, beams: list[_Beam]) -> list[_Beam]:
        """The beams after one more frame."""
        ended: dict[tuple[int, ...], _Beam] = {}
        for emitted in range(self.max_symbols_per_frame + 1):
            predictions = torch.cat([beam.prefix.prediction for beam in beams])
            scores = self.joiner(encoder_projection, predictions).float().log_softmax(dim=-1)
            for beam, blank in zip(beams, scores[:, BLANK].tolist(), strict=True):
                _merge(ended, replace(beam, score=beam.score + blank, path_score=beam.path_score + blank))
            if emitted == self.max_symbols_per_frame:
                break
            beams = self._extend(beams, scores, frame, self._threshold(ended.values()))
            if not beams:
                break
        return self._best(ended.values())

    def _extend(
        self, beams: list[_Beam], scores: Float[Tensor, "beams vocab"], frame: int, threshold: float
    ) -> list[_Beam]:
        """The best hypotheses with one more token in this frame, as far as they reach the threshold."""
        tokens_only = scores.index_fill(1, torch.tensor([BLANK], device=scores.device), -math.inf)
        totals = tokens_only + scores.new_tensor([beam.score for beam in beams])[:, None]
        best, cells = totals.flatten().topk(min(self.beam_size, totals.shape[0] * (totals.shape[1] - 1)))
        extended = []
        for total, cell in zip(best.tolist(), cells.tolist(), strict=True):
            if total <= threshold:
                break
            index, token = divmod(cell, totals.shape[1])
            beam = beams[index]
            path_score = beam.path_score + total - beam.score
            tokens, frames = (*beam.tokens, token), (*beam.frames, frame)
            extended.append(_Beam(tokens, frames, total, path_score, self._child(beam.prefix, token)))
        return extended

    def _threshold(self, ended: Iterable[_Beam]) -> float:
        """The score below which a hypothesis cannot end among the best any more."""
        scores = sorted((beam.score for beam in ended), reverse=True)
        return scores[self.beam_size - 1] if len(scores) >= self.beam_size else -math.inf

    def _best(self, beams: Iterable[_Beam]) -> list[_Beam]:
        return sorted(beams, key=lambda beam: (-beam.score, beam.tokens))[: self.beam_size]

    def _child(self, prefix: _Prefix, token: int) -> _Prefix:
        if token not in prefix.children:
            prefix.children[token] = self._prefix(token, prefix.predictor)
        return prefix.children[token]

    def _prefix(self, token: int, predictor: Any) -> _Prefix:
        device = self.joiner.project_encoder.weight.device
        predicted, predictor = self.predictor.stream(torch.tensor([token], device=device), predictor)
        return _Prefix(predictor, self.joiner.project_predictor(predicted))


def _merge(beams: dict[tuple[int, ...], _Beam], beam: _Beam) -> None:
    """Add an alignment to its token sequence; the emission frames are those of the likelier one."""
    known = beams.get(beam.tokens)
    if known is None:
        beams[beam.tokens] = beam
        return
    likelier = beam if beam.path_score > known.path_score else known
    high, low = max(beam.score, known.score), min(beam.score, known.score)
    total = high + math.log1p(math.exp(low - high)) if low > -math.inf else high
    beams[beam.tokens] = replace(likelier, score=total)
