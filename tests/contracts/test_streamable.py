"""The streaming law, for every box on the path from samples to tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chunkwise.audio.fbank import Fbank, FbankConfig
from chunkwise.decoding.greedy import GreedySearch
from chunkwise.decoding.search import decode
from chunkwise.models.conformer import AttentionKind, ConformerEncoder, EncoderConfig
from chunkwise.models.context import ChunkContext
from chunkwise.models.joiner import JoinerConfig
from chunkwise.models.predictor import PredictorConfig, PredictorKind
from chunkwise.models.transducer import Transducer, TransducerConfig
from chunkwise.nn.subsampling import Subsampling
from chunkwise.typing import Streamable

MELS = 12
CONTEXTS = [
    ChunkContext(),
    ChunkContext(1, 0),
    ChunkContext(1, 3),
    ChunkContext(4, 0),
    ChunkContext(4, 2),
    ChunkContext(5, None),
    ChunkContext(64, 1),
]


@dataclass
class Box:
    """One box, seen as a function of whole utterances and as a stream."""

    input_axes: tuple[int, ...]
    longest: int
    forward: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    initial_state: Callable[[int], Any]
    stream: Callable[[Tensor, Any], tuple[Tensor, Any]]
    flush: Callable[[Any], tuple[Tensor, Any]]

    def pieces(self, x: Tensor, cuts: list[int]) -> Tensor:
        state, outputs = self.initial_state(x.shape[0]), []
        for piece in x.tensor_split(sorted(cut % (x.shape[1] + 1) for cut in cuts), dim=1):
            output, state = self.stream(piece, state)
            outputs.append(output)
        output, state = self.flush(state)
        again, _ = self.flush(state)
        assert again.shape[1] == 0, "a second flush gave something"
        return torch.cat([*outputs, output], dim=1)


def encoder_config(attention: AttentionKind = AttentionKind.rotary) -> EncoderConfig:
    return EncoderConfig(
        d_model=16, num_layers=2, num_heads=2, feed_forward_dim=32, kernel_size=7, subsampling_channels=4,
        attention=attention,
    )  # fmt: skip


def fbank() -> Box:
    box = Fbank(FbankConfig()).double().eval()
    return Box((), 4000, box, box.initial_state, box.stream, box.flush)


def subsampling() -> Box:
    box = Subsampling(MELS, 4, 8).double().eval()
    return Box((MELS,), 40, box, box.initial_state, box.stream, box.flush)


def encoder(attention: AttentionKind, context: ChunkContext) -> Box:
    box = ConformerEncoder(encoder_config(attention), MELS).double().eval()
    return Box(
        (MELS,), 90, lambda x, n: box(x, n, context), lambda batch: box.initial_state(batch, context), box.stream,
        box.flush,
    )  # fmt: skip


def boxes() -> dict[str, Callable[[], Box]]:
    named: dict[str, Callable[[], Box]] = {"fbank": fbank, "subsampling": subsampling}
    for attention in AttentionKind:
        for context in CONTEXTS:
            name = f"encoder-{attention}-{context.chunk_frames}-{context.left_chunks}"
            named[name] = lambda attention=attention, context=context: encoder(attention, context)
    return named


@pytest.fixture(params=boxes().items(), ids=lambda item: item[0], scope="module")
def box(request: pytest.FixtureRequest) -> Box:
    torch.manual_seed(0)
    return request.param[1]()


def random_input(box: Box, batch: int, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randn(batch, length, *box.input_axes, generator=generator, dtype=torch.float64)


@given(data=st.data())
@settings(max_examples=12, deadline=None, derandomize=True)
def test_a_stream_equals_the_whole_for_every_cut(box: Box, data: st.DataObject) -> None:
    length = data.draw(st.integers(1, box.longest))
    cuts = data.draw(st.lists(st.integers(0, box.longest), max_size=8))
    x = random_input(box, 2, length)
    with torch.no_grad():
        whole, lengths = box.forward(x, torch.tensor([length, length]))
        streamed = box.pieces(x, cuts)
    assert streamed.shape[1] == int(lengths[0])
    torch.testing.assert_close(streamed, whole[:, : streamed.shape[1]], atol=1e-9, rtol=0)


@pytest.mark.parametrize("piece", [1, 2, 7])
def test_a_stream_equals_the_whole_for_small_even_pieces(box: Box, piece: int) -> None:
    length = min(box.longest, 700)
    x = random_input(box, 1, length)
    with torch.no_grad():
        whole, lengths = box.forward(x, torch.tensor([length]))
        streamed = box.pieces(x, list(range(piece, length, piece)))
    torch.testing.assert_close(streamed, whole[:, : int(lengths[0])], atol=1e-9, rtol=0)


@pytest.mark.parametrize("fill", [float("nan"), 1e4])
def test_padding_and_batch_mates_are_invisible(box: Box, fill: float) -> None:
    long, short = box.longest, box.longest // 3
    x = random_input(box, 2, long)
    x[1, short:] = fill
    with torch.no_grad():
        batched, lengths = box.forward(x, torch.tensor([long, short]))
        alone, _ = box.forward(x[1:, :short], torch.tensor([short]))
    torch.testing.assert_close(batched[1, : int(lengths[1])], alone[0], atol=1e-9, rtol=0)


def test_padding_gets_no_gradient(box: Box) -> None:
    long, short = box.longest, box.longest // 3
    x = random_input(box, 2, long)
    x[1, short:] = float("nan")
    x.requires_grad_()
    output, lengths = box.forward(x, torch.tensor([long, short]))
    (output[0, : int(lengths[0])].square().sum() + output[1, : int(lengths[1])].square().sum()).backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    assert not x.grad[1, short:].any()


def test_interleaved_sessions_equal_separate_ones(box: Box) -> None:
    length = min(box.longest, 900)
    both = random_input(box, 2, length)
    piece = max(1, length // 5)
    states, outputs = [box.initial_state(1), box.initial_state(1)], [[], []]
    with torch.no_grad():
        for start in range(0, length, piece):
            for session in (0, 1):
                y, states[session] = box.stream(both[session : session + 1, start : start + piece], states[session])
                outputs[session].append(y)
        for session in (0, 1):
            joined = torch.cat([*outputs[session], box.flush(states[session])[0]], dim=1)
            separate = box.pieces(both[session : session + 1], list(range(piece, length, piece)))
            torch.testing.assert_close(joined, separate, atol=0, rtol=0)


@pytest.mark.parametrize("attention", list(AttentionKind))
def test_full_context_equals_one_chunk_wider_than_the_utterance(attention: AttentionKind) -> None:
    box = ConformerEncoder(encoder_config(attention), MELS).double().eval()
    x, lengths = torch.randn(2, 20, MELS, dtype=torch.float64), torch.tensor([20, 13])
    full, _ = box(x, lengths, ChunkContext())
    for context in (ChunkContext(5, 0), ChunkContext(64, None)):
        torch.testing.assert_close(box(x, lengths, context)[0], full, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", list(PredictorKind))
@given(data=st.data())
@settings(max_examples=15, deadline=None, derandomize=True)
def test_tokens_of_a_stream_equal_those_of_the_whole(kind: PredictorKind, data: st.DataObject) -> None:
    torch.manual_seed(1)
    parts = TransducerConfig(
        encoder=encoder_config(), predictor=PredictorConfig(kind=kind, dim=8), joiner=JoinerConfig(dim=8),
        num_mels=MELS, vocab_size=6,
    )  # fmt: skip
    search = GreedySearch(Transducer(parts).double().eval(), max_symbols_per_frame=3)
    frames = data.draw(st.integers(1, 30))
    cuts = sorted(data.draw(st.lists(st.integers(0, frames), max_size=6)))
    encoded = torch.randn(2, frames, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(frames))
    with torch.no_grad():
        whole = decode(search, encoded, torch.tensor([frames, frames]))
        state = search.initial_state(2)
        for piece in encoded.tensor_split(cuts, dim=1):
            state = search.stream(piece, torch.full((2,), piece.shape[1]), state)
    for one, other in zip(search.hypotheses(state), whole, strict=True):
        assert (one.tokens, one.frames) == (other.tokens, other.frames)


def test_boxes_with_a_fixed_window_declare_it_and_keep_to_it() -> None:
    """An output's gradient ends where `left` and `right` say, counted from its own block of `stride` inputs."""
    torch.manual_seed(0)
    window_box = Subsampling(MELS, 16, 8).double().eval()
    for box in (Fbank(FbankConfig()).double().eval(), window_box):
        assert isinstance(box, Streamable)
        length = 24 * box.stride
        axes = (MELS,) if box is window_box else ()
        x = torch.randn(1, length, *axes, dtype=torch.float64, requires_grad=True)
        output, _ = box(x, torch.tensor([length]))
        for position in (5, 11):
            (gradient,) = torch.autograd.grad(output[0, position].square().sum(), x, retain_graph=True)
            touched = gradient[0].reshape(length, -1).abs().amax(dim=1).nonzero().flatten()
            assert int(touched.min()) == position * box.stride - box.left
            assert int(touched.max()) == (position + 1) * box.stride - 1 + box.right
