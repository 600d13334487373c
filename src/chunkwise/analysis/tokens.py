"""What a token depends on: its own probability, the path that leads to it, and the decision to emit it.

A transducer's path is a list of arcs: at each encoder frame its tokens, then a blank. With the path that decoding found
held fixed, there are three questions, from the narrowest to the widest, each with an exact answer to compare with:

| question | measured as | may depend on what is seen by |
| --- | --- | --- |
| `emission` | the log-probability of the token where it was emitted, after the tokens before it | its encoder frame |
| `path` | the log-probability of all arcs up to and with the token | the encoder frames up to its own |
| `decision` | whether decoding again finds the same tokens and frames up to this one | the same, in greedy search |

The first two have gradients. The predictor is fed with tokens, which have none: its share, and that of every blank or
token on the way, is in `path` and `decision`. Beam search may change its mind until the utterance ends, so there a
decision may depend on what any encoder frame sees.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from chunkwise.analysis.expectation import earlier_rows_too
from chunkwise.analysis.measurement import Strengths
from chunkwise.analysis.systems import System
from chunkwise.decoding.greedy import GreedySearch
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.decoding.search import Search, decode
from chunkwise.models.transducer import Transducer
from chunkwise.typing import BLANK


@dataclass(frozen=True, slots=True)
class Path:
    """The arcs of a hypothesis: the encoder frame, the tokens before it and the label of each."""

    frames: Int[Tensor, " arcs"]
    histories: Int[Tensor, " arcs"]  # how many tokens were emitted before the arc
    labels: Int[Tensor, " arcs"]
    emissions: Int[Tensor, " symbols"]  # which arcs are the tokens

    @classmethod
    def of(cls, hypothesis: Hypothesis, num_frames: int) -> "Path":
        """The path of a hypothesis over `num_frames` encoder frames.

        >>> Path.of(Hypothesis(tokens=[5, 7], frames=[1, 1], score=0.0), num_frames=3).labels.tolist()
        [0, 5, 7, 0, 0]
        """
        arcs, emissions, history = list[tuple[int, int, int]](), list[int](), 0
        for frame in range(num_frames):
            while history < len(hypothesis.tokens) and hypothesis.frames[history] == frame:
                emissions.append(len(arcs))
                arcs.append((frame, history, hypothesis.tokens[history]))
                history += 1
            arcs.append((frame, history, BLANK))
        frames, histories, labels = torch.tensor(arcs, dtype=torch.long).reshape(-1, 3).T
        return cls(frames, histories, labels, torch.tensor(emissions, dtype=torch.long))


def arc_scores(
    model: Transducer, encoded: Float[Tensor, "batch encoder_frames d_model"], path: Path, tokens: list[int]
) -> Float[Tensor, "batch arcs"]:
    """The log-probability of each arc of a fixed path, for every row of a batch."""
    history = torch.tensor([tokens], dtype=torch.long, device=encoded.device)
    predicted = model.joiner.project_predictor(model.predictor(history)[0])
    projected = model.joiner.project_encoder(encoded)
    logits = model.joiner(projected[:, path.frames], predicted[path.histories])
    return logits.log_softmax(dim=2)[:, torch.arange(len(path.labels)), path.labels]


def token_systems(model: Transducer, below: System, hypothesis: Hypothesis) -> list[System]:
    """The `emission` and `path` of each token, along the system that gives the encoder frames."""
    path, tokens = Path.of(hypothesis, len(below.expected)), hypothesis.tokens
    frames = torch.tensor(hypothesis.frames, dtype=torch.long)
    source = below.name.removeprefix("frames_from_")

    def emission(inputs: Tensor) -> Float[Tensor, "batch symbols 1"]:
        return arc_scores(model, below.function(inputs), path, tokens)[:, path.emissions, None]

    def prefix(inputs: Tensor) -> Float[Tensor, "batch symbols 1"]:
        return arc_scores(model, below.function(inputs), path, tokens).cumsum(dim=1)[:, path.emissions, None]

    own = replace(below, name=f"emission_from_{source}", outputs="token", function=emission)
    own = replace(own, expected=below.expected[frames], starts=below.starts[frames])
    earlier = earlier_rows_too(below.expected, hypothesis.frames)
    return [own, replace(own, name=f"path_from_{source}", function=prefix, expected=earlier)]


def decision_system(below: System, hypothesis: Hypothesis, search: Search) -> System:
    """Whether decoding again finds the hypothesis up to each token: 0 where it does, 1 where not."""
    last = len(below.expected) - 1
    frames = hypothesis.frames if isinstance(search, GreedySearch) else [last] * len(hypothesis.frames)

    def decisions(inputs: Tensor) -> Float[Tensor, "batch symbols 1"]:
        encoded = below.function(inputs)
        lengths = torch.full((len(encoded),), encoded.shape[1], device=encoded.device)
        found = [_differs(other, hypothesis) for other in decode(search, encoded, lengths)]
        return torch.tensor(found, device=inputs.device).to(inputs)[:, :, None]

    source = below.name.removeprefix("frames_from_")
    starts = below.starts[torch.tensor(hypothesis.frames, dtype=torch.long)]
    return replace(
        below, name=f"decision_from_{source}", outputs="token", function=decisions, starts=starts,
        expected=earlier_rows_too(below.expected, frames),
    )  # fmt: skip


def listened(strengths: Strengths, share: float = 0.9) -> Bool[Tensor, "outputs positions"]:
    """The fewest inputs that hold this share of each output's strength."""
    order = strengths.values.argsort(dim=1, descending=True)
    sorted_values = strengths.values.gather(1, order)
    before = sorted_values.cumsum(dim=1) - sorted_values
    needed = before < share * sorted_values.sum(dim=1, keepdim=True)
    return torch.zeros_like(needed).scatter_(1, order, needed)


def _differs(other: Hypothesis, hypothesis: Hypothesis) -> list[float]:
    """1 for every token up to which the other hypothesis is not the same."""
    same, differs = True, list[float]()
    for index, emission in enumerate(zip(hypothesis.tokens, hypothesis.frames, strict=True)):
        same = same and emission == tuple(pair[index] for pair in (other.tokens, other.frames) if index < len(pair))
        differs.append(0.0 if same else 1.0)
    return differs
