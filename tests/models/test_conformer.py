from typing import Any

import pytest
import torch

from chunkwise.models.conformer import AttentionKind, ConformerEncoder, EncoderConfig
from chunkwise.models.context import ChunkContext
from chunkwise.nn.convolution import ChunkConvolution
from chunkwise.nn.masks import chunk_visibility


def encoder(kernel_size: int = 31, attention: AttentionKind = AttentionKind.rotary) -> ConformerEncoder:
    torch.manual_seed(0)
    config = EncoderConfig(
        d_model=16, num_layers=2, num_heads=2, feed_forward_dim=32, kernel_size=kernel_size, subsampling_channels=4,
        attention=attention,
    )  # fmt: skip
    return ConformerEncoder(config, num_mels=8).double().eval()


@pytest.mark.parametrize("attention", list(AttentionKind))
@pytest.mark.parametrize("chunk", [1, 8, 16, 40])
def test_nothing_right_of_the_chunk_is_seen(chunk: int, attention: AttentionKind) -> None:
    """k2-fsa/icefall#89: the masked training pass must not look past the chunk through its convolution."""
    model = encoder(attention=attention)
    x, lengths = torch.randn(1, 160, 8, dtype=torch.float64), torch.tensor([160])
    border = 16 // chunk * chunk if chunk <= 16 else 0
    poked = x.clone()
    poked[:, 4 * 16 :] += 10.0
    before, after = (model(features, lengths, ChunkContext(chunk, None))[0] for features in (x, poked))
    moved = (before - after).abs().amax(dim=(0, 2))
    assert not moved[:border].any()
    assert moved[16:].all()


def test_full_context_sees_everything() -> None:
    model = encoder()
    x, lengths = torch.randn(1, 160, 8, dtype=torch.float64), torch.tensor([160])
    poked = x.clone()
    poked[:, -1] += 10.0
    assert (model(x, lengths, ChunkContext())[0] != model(poked, lengths, ChunkContext())[0]).any(dim=2).all()


def dependencies(model: ConformerEncoder, frames: int, context: ChunkContext) -> torch.Tensor:
    """Which subsampled frame (column) each encoder frame (row) depends on, by gradient; `model` takes such frames."""
    x = torch.randn(1, frames, 16, dtype=torch.float64, requires_grad=True)
    encoded, _ = model(x, torch.tensor([frames]), context)
    rows = [torch.autograd.grad(encoded[0, t].square().sum(), x, retain_graph=True)[0] for t in range(frames)]
    return torch.stack([row[0].abs().amax(dim=1) > 0 for row in rows])


@pytest.mark.parametrize(("left", "expected"), [(1, 304), (None, 336)])
def test_the_dependency_matrix_has_exactly_the_entries_of_the_rule(
    left: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """speechbrain/speechbrain#2140: 24 frames, chunks of 4, kernel 5, two layers of attention then convolution."""
    model = encoder(kernel_size=5)
    monkeypatch.setattr(model.subsampling, "forward", lambda features, lengths: (features, lengths))
    found = dependencies(model, 24, ChunkContext(4, left))
    visible = chunk_visibility(24, 4, left).float()
    reach = torch.arange(24)
    near = ((reach[:, None] - reach).abs() <= 2) & chunk_visibility(24, 4, None)
    layer = near.float() @ visible
    assert torch.equal(found, (layer @ layer) > 0)
    assert int(found.sum()) == expected
    if left == 1:
        assert found[16].nonzero().flatten().tolist() == list(range(20))
        assert found[18].nonzero().flatten().tolist() == list(range(4, 20))


def test_predicted_lengths_equal_real_ones_for_every_short_input() -> None:
    model = encoder()
    lengths = torch.arange(1, 65)
    encoded, encoded_lengths = model(torch.randn(64, 64, 8, dtype=torch.float64), lengths, ChunkContext())
    assert torch.equal(encoded_lengths, model.output_lengths(lengths))
    assert int(encoded_lengths.max()) == encoded.shape[1]
    for length in (1, 2, 3, 4, 5, 31, 64):
        alone, _ = model(torch.randn(1, length, 8, dtype=torch.float64), torch.tensor([length]), ChunkContext(2, 1))
        assert alone.shape[1] == int(encoded_lengths[length - 1])


def test_a_chunk_longer_than_the_utterance_is_full_context() -> None:
    model = encoder()
    x, lengths = torch.randn(1, 20, 8, dtype=torch.float64), torch.tensor([20])
    wide, full = (model(x, lengths, context)[0] for context in (ChunkContext(64, 2), ChunkContext()))
    assert wide.shape[1] == 5
    torch.testing.assert_close(wide, full, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("key", "value", "words"), [
    ("num_heads", 7, "encoder.num_heads=7 must divide encoder.d_model=256"),
    ("kernel_size", 30, "encoder.kernel_size=30 must be odd"),
    ("num_layers", 0, "encoder.num_layers=0"),
    ("dropout", 1.0, "encoder.dropout=1.0"),
])  # fmt: skip
def test_impossible_shapes_are_refused_by_name(key: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        EncoderConfig(**{key: value})


def test_the_convolution_without_chunks_equals_torchs() -> None:
    torch.manual_seed(0)
    module = ChunkConvolution(4, 5, 0.0).double().eval()
    x, valid = torch.randn(1, 9, 4, dtype=torch.float64), torch.ones(1, 9, dtype=torch.bool)
    torch.testing.assert_close(module(x, valid, None), module(x, valid, 9), atol=1e-12, rtol=0)


def test_the_cache_of_the_convolution_has_a_fixed_length() -> None:
    module = ChunkConvolution(4, 31, 0.0).eval()
    state = module.initial_state(1)
    for _ in range(20):
        _, state = module.stream(torch.randn(1, 3, 4), state)
        assert state.shape == (1, 15, 4)
