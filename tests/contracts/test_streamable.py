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
from chunkwise.decoding.greedy import GreedySearch, GreedyState
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.decoding.search import decode
from chunkwise.models.conformer import AttentionKind, ConformerEncoder, EncoderConfig
from chunkwise.models.context import ChunkContext
from chunkwise.models.encoder_state import join_streams, split_streams
from chunkwise.models.joiner import JoinerConfig
from chunkwise.models.normalisation import FeatureNormalisation, NormalisationConfig
from chunkwise.models.predictor import PredictorConfig, PredictorKind
from chunkwise.models.transducer import Transducer, TransducerConfig
from chunkwise.nn.attention import AttentionState, ChunkView, RelativeAttention, RotaryAttention, SelfAttention
from chunkwise.nn.blocks import cut_into_blocks
from chunkwise.nn.convolution import ChunkConvolution
from chunkwise.nn.masks import valid_frames
from chunkwise.nn.subsampling import Subsampling
from chunkwise.typing import Streamable, Window

MELS = 12
WIDTH = 8
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
    stride: int
    window: Window
    differentiable: bool = True

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
    return Box((), 4000, box, box.initial_state, box.stream, box.flush, box.stride, Window(box.left, box.right))


def normalisation(prior_frames: float | None) -> Box:
    box = FeatureNormalisation(MELS, NormalisationConfig(prior_frames=prior_frames)).double().eval()
    box.set_statistics(torch.full((MELS,), 0.5), torch.full((MELS,), 2.0))
    return Box(
        (MELS,), 90, lambda x, n: (box(x, n), n), box.initial_state, box.stream, box.flush, box.stride,
        Window(box.left, box.right),
    )  # fmt: skip


def subsampling() -> Box:
    box = Subsampling(MELS, 4, 8).double().eval()
    window = Window(box.left, box.right)
    return Box((MELS,), 40, box, box.initial_state, box.stream, box.flush, box.stride, window)


def encoder(attention: AttentionKind, context: ChunkContext) -> Box:
    box = ConformerEncoder(encoder_config(attention), MELS).double().eval()
    return Box(
        (MELS,), 90, lambda x, n: box(x, n, context), lambda batch: box.initial_state(batch, context), box.stream,
        box.flush, box.stride, box.window(context),
    )  # fmt: skip


def pieces_of_chunks(
    stream: Callable[[Tensor, Any], tuple[Tensor, Any]], flush: Callable[[Any], tuple[Tensor, Any]], chunk: int | None
) -> tuple[Callable[[Tensor, Any], tuple[Tensor, Any]], Callable[[Any], tuple[Tensor, Any]]]:
    """A box that takes a chunk at a time, fed with pieces of any size; the state is what waits and the box's own."""

    def feed(piece: Tensor, state: Any) -> tuple[Tensor, Any]:
        waiting, own = state
        waiting, outputs = torch.cat((waiting, piece), dim=1), [piece[:, :0]]
        while chunk is not None and waiting.shape[1] >= chunk:
            output, own = stream(waiting[:, :chunk], own)
            waiting = waiting[:, chunk:]
            outputs.append(output)
        return torch.cat(outputs, dim=1), (waiting, own)

    def end(state: Any) -> tuple[Tensor, Any]:
        waiting, own = state
        last, own = stream(waiting, own) if waiting.shape[1] else (waiting, own)
        rest, own = flush(own)
        return torch.cat((last, rest), dim=1), (waiting[:, :0], own)

    return feed, end


def attention(kind: type[SelfAttention], context: ChunkContext) -> Box:
    box = kind(WIDTH, 2, 0.0).double().eval()

    def forward(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        valid = valid_frames(lengths, x.shape[1])
        blocks = cut_into_blocks(valid, context.chunk_frames, context.left_chunks)
        positions = box.embed_positions(torch.arange(x.shape[1]), blocks.size, blocks.window)
        return box(x.masked_fill(~valid[:, :, None], 0.0), blocks, positions), lengths

    def stream(chunk: Tensor, state: tuple[AttentionState, int]) -> tuple[Tensor, tuple[AttentionState, int]]:
        own, first = state
        stored, frames = own.keys.shape[1], chunk.shape[1]
        positions = box.embed_positions(torch.arange(first, first + frames)[None], frames, stored + frames)
        cached = (torch.arange(stored) >= stored - first).expand(len(chunk), -1)
        visible = torch.cat((cached, cached.new_ones(len(chunk), frames)), dim=1)[:, None, None]
        view = ChunkView(positions, context.left_frames, visible, cached[:, :, None, None])
        output, own = box.stream(chunk, own, view)
        return output, (own, first + frames)

    def flush(state: tuple[AttentionState, int]) -> tuple[Tensor, tuple[AttentionState, int]]:
        rest, own = box.flush(state[0])
        return rest, (own, state[1])

    feed, end = pieces_of_chunks(stream, flush, context.chunk_frames)

    def initial_state(batch: int) -> Any:
        own = box.initial_state(batch, context.left_frames)
        return torch.zeros(batch, 0, WIDTH, dtype=torch.float64), (own, 0)

    return Box(
        (WIDTH,), 150, forward, initial_state, feed, end, 1, box.window(context.chunk_frames, context.left_frames)
    )


def convolution(context: ChunkContext) -> Box:
    box = ChunkConvolution(WIDTH, 7, 0.0).double().eval()

    def forward(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        valid = valid_frames(lengths, x.shape[1])
        return box(x.masked_fill(~valid[:, :, None], 0.0), valid, context.chunk_frames), lengths

    feed, end = pieces_of_chunks(box.stream, box.flush, context.chunk_frames)

    def initial_state(batch: int) -> Any:
        return torch.zeros(batch, 0, WIDTH, dtype=torch.float64), box.initial_state(batch)

    return Box((WIDTH,), 90, forward, initial_state, feed, end, 1, box.window(context.chunk_frames))


def greedy(kind: PredictorKind) -> Box:
    """Greedy search: encoder frames to how often each token comes out of each of them."""
    parts = TransducerConfig(
        encoder=encoder_config(), predictor=PredictorConfig(kind=kind, dim=8), joiner=JoinerConfig(dim=8),
        num_mels=MELS, vocab_size=6,
    )  # fmt: skip
    search = GreedySearch(Transducer(parts).double().eval(), max_symbols_per_frame=3)

    def emitted(hypotheses: list[Hypothesis], first: int, frames: int) -> Tensor:
        counts = torch.zeros(len(hypotheses), frames, 6, dtype=torch.float64)
        for row, found in enumerate(hypotheses):
            for token, frame in zip(found.tokens, found.frames, strict=True):
                if frame >= first:
                    counts[row, frame - first, token] += 1
        return counts

    def forward(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return emitted(decode(search, x, lengths), 0, x.shape[1]), lengths

    def stream(piece: Tensor, state: GreedyState) -> tuple[Tensor, GreedyState]:
        first, frames = int(state.frames[0]), piece.shape[1]
        state = search.stream(piece, torch.full((len(piece),), frames), state) if frames else state
        return emitted(search.hypotheses(state), first, frames), state

    def flush(state: GreedyState) -> tuple[Tensor, GreedyState]:
        return torch.zeros(len(state.tokens), 0, 6, dtype=torch.float64), state

    return Box((16,), 30, forward, search.initial_state, stream, flush, 1, Window(None, 0), differentiable=False)


def boxes() -> dict[str, Callable[[], Box]]:
    named: dict[str, Callable[[], Box]] = {"fbank": fbank, "subsampling": subsampling}
    for prior in (None, 0.0, 30.0):
        named[f"normalisation-{prior}"] = lambda prior=prior: normalisation(prior)
    for kind in PredictorKind:
        named[f"greedy-{kind}"] = lambda kind=kind: greedy(kind)
    for context in CONTEXTS:
        under = f"{context.chunk_frames}-{context.left_chunks}"
        for kind in AttentionKind:
            named[f"encoder-{kind}-{under}"] = lambda kind=kind, context=context: encoder(kind, context)
        for kind in (RotaryAttention, RelativeAttention):
            named[f"{kind.__name__}-{under}"] = lambda kind=kind, context=context: attention(kind, context)
        if context.left_chunks == 0 or context.chunk_frames is None:  # the convolution knows no left context
            named[f"convolution-{under}"] = lambda context=context: convolution(context)
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
    if not box.differentiable:
        pytest.skip("tokens have no gradient")
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


def test_the_gradient_and_a_poke_end_where_the_declared_window_ends(box: Box) -> None:
    """Nothing outside `left` and `right` counts; where a limit is declared, some output reaches it."""
    if not box.differentiable:
        pytest.skip("tokens have no gradient")
    torch.manual_seed(0)
    blocks = 24 if box.stride > 4 else 60
    length = blocks * box.stride
    x = random_input(box, 1, length).requires_grad_()
    output, _ = box.forward(x, torch.tensor([length]))
    weights = torch.randn(output.shape[2:], dtype=torch.float64)
    reach_left, reach_right = set(), set()
    for position in range(blocks // 3, blocks // 3 + 12):
        (gradient,) = torch.autograd.grad((output[0, position] * weights).sum(), x, retain_graph=True)
        touched = gradient[0].reshape(length, -1).abs().amax(dim=1).nonzero().flatten()
        reach_left.add(position * box.stride - int(touched.min()))
        reach_right.add(int(touched.max()) - (position + 1) * box.stride + 1)
    start = blocks // 3 * box.stride
    for reach, limit, room in ((reach_left, box.window.left, start), (reach_right, box.window.right, length - start)):
        if limit is None or limit >= room:
            assert max(reach) > 0
        else:
            assert max(reach) == limit
    with torch.no_grad():
        position = blocks // 3
        poked, right = x.detach().clone(), box.window.right
        outside = slice((position + 1) * box.stride + (length if right is None else right), None)
        poked[0, outside] += 10.0
        moved = box.forward(poked, torch.tensor([length]))[0][0, position] - output[0, position]
        assert float(moved.abs().max()) < 1e-12


def test_boxes_are_streamable() -> None:
    for box in (Fbank(FbankConfig()), FeatureNormalisation(MELS, NormalisationConfig()), Subsampling(MELS, 16, 8)):
        assert isinstance(box, Streamable)


@pytest.mark.parametrize(("kind", "context"), [
    (AttentionKind.rotary, ChunkContext(16, 4)),
    (AttentionKind.rotary, ChunkContext(32, None)),
    (AttentionKind.relative, ChunkContext(32, 2)),
], ids=str)  # fmt: skip
def test_a_stream_of_6000_encoder_frames_equals_the_whole(kind: AttentionKind, context: ChunkContext) -> None:
    torch.manual_seed(0)
    box = ConformerEncoder(encoder_config(kind), MELS).eval()
    length = 4 * 6000 - 3
    x = torch.randn(1, length, MELS)
    with torch.inference_mode():
        whole, _ = box(x, torch.tensor([length]), context)
        state, outputs = box.initial_state(1, context), []
        for piece in x.split(997, dim=1):
            output, state = box.stream(piece, state)
            outputs.append(output)
        outputs.append(box.flush(state)[0])
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole, atol=1e-4, rtol=0)


@pytest.mark.parametrize("context", [ChunkContext(4, 2), ChunkContext(5, None), ChunkContext(1, 0)], ids=str)
def test_streams_of_different_age_and_end_advance_in_one_batch(context: ChunkContext) -> None:
    """Rows join late, end early and end in chunks of different length; each is as if it were alone."""
    torch.manual_seed(0)
    box = ConformerEncoder(encoder_config(), MELS).double().eval()
    size = box.chunk_features(context)
    assert size is not None
    xs = [torch.randn(1, n, MELS, dtype=torch.float64) for n in (7 * size, 3 * size + 1, 5 * size + size // 2 + 1, 2)]
    starts = [0, 2, 0, 3]
    states = [box.initial_state(1, context) for _ in xs]
    outputs: list[list[Tensor]] = [[] for _ in xs]
    with torch.inference_mode():
        for turn in range(7):
            moving = [i for i, x in enumerate(xs) if 0 <= (turn - starts[i]) * size < x.shape[1]]
            chunks = [xs[i][:, (turn - starts[i]) * size :][:, :size] for i in moving]
            lengths = [chunk.shape[1] for chunk in chunks]
            padded = torch.cat([torch.nn.functional.pad(c, (0, 0, 0, max(lengths) - c.shape[1])) for c in chunks])
            encoded, joined = box.stream_chunk(padded, lengths, join_streams([states[i] for i in moving]))
            for row, (i, state) in enumerate(zip(moving, split_streams(joined), strict=True)):
                states[i] = state
                outputs[i].append(encoded[row : row + 1, : -(-lengths[row] // 4)])
        for x, output in zip(xs, outputs, strict=True):
            whole, _ = box(x, torch.tensor([x.shape[1]]), context)
            torch.testing.assert_close(torch.cat(output, dim=1), whole, atol=1e-9, rtol=0)


def test_the_state_of_a_stream_has_a_fixed_size() -> None:
    """NVIDIA-NeMo/Speech#5867: neither attention nor convolution keeps more than the left context."""
    box = ConformerEncoder(encoder_config(), MELS).eval()
    state, sizes = box.initial_state(1, ChunkContext(8, 2)), set()
    with torch.inference_mode():
        for _ in range(100):
            _, state = box.stream(torch.randn(1, 32, MELS), state)
            sizes.add(tuple((layer.attention.keys.shape[1], layer.convolution.shape[1]) for layer in state.layers))
    assert sizes == {((16, 3), (16, 3))}
    assert state.frames == (800,)
