from collections import Counter

import pytest

from chunkwise.models.context import (
    FULL,
    ChunkContext,
    ChunkingConfig,
    ChunkingKind,
    draw_context,
    fixed_context,
)

DYNAMIC = ChunkingConfig(
    kind=ChunkingKind.dynamic, chunked_probability=0.6, min_chunk_frames=8, max_chunk_frames=32,
    limited_left_probability=0.75, min_left_chunks=2, max_left_chunks=32,
)  # fmt: skip
UNIFORM = ChunkingConfig(
    kind=ChunkingKind.uniform, longest_frames=1000, full_above=0.75, max_chunk_frames=25, left_chunks=4
)
CHOICES = ChunkingConfig(kind=ChunkingKind.choices, choices=[[8, 8], [16, 4], [None, None]], weights=[1.0, 2.0, 1.0])
DRAWS = 6000


def shares(config: ChunkingConfig) -> Counter[ChunkContext]:
    return Counter(draw_context(config, seed=3, step=step) for step in range(DRAWS))


def share(counts: Counter[ChunkContext], wanted: object) -> float:
    assert callable(wanted)
    return sum(count for context, count in counts.items() if wanted(context)) / DRAWS


def test_dynamic_follows_its_rule() -> None:
    counts = shares(DYNAMIC)
    assert share(counts, lambda c: c == FULL) == pytest.approx(0.40, abs=0.02)
    assert share(counts, lambda c: c.chunk_frames and c.left_chunks is None) == pytest.approx(0.15, abs=0.02)
    assert share(counts, lambda c: c.left_chunks is not None) == pytest.approx(0.45, abs=0.02)
    assert {c.chunk_frames for c in counts} - {None} == set(range(8, 33))
    assert {c.left_chunks for c in counts} - {None} == set(range(2, 33))


def test_uniform_follows_its_rule() -> None:
    counts = shares(UNIFORM)
    assert share(counts, lambda c: c == FULL) == pytest.approx(0.25, abs=0.02)
    sizes = [c.chunk_frames for c in counts if c != FULL]
    assert set(sizes) == set(range(1, 26))
    assert {c.left_chunks for c in counts if c != FULL} == {4}


def test_choices_follow_their_weights() -> None:
    counts = shares(CHOICES)
    assert share(counts, lambda c: c == ChunkContext(16, 4)) == pytest.approx(0.5, abs=0.02)
    assert share(counts, lambda c: c == FULL) == pytest.approx(0.25, abs=0.02)


def test_a_draw_depends_on_seed_and_step_alone() -> None:
    first = [draw_context(DYNAMIC, 1, step) for step in range(50)]
    assert first == [draw_context(DYNAMIC, 1, step) for step in range(50)]
    assert draw_context(DYNAMIC, 1, 17) == first[17]
    assert first != [draw_context(DYNAMIC, 2, step) for step in range(50)]


@pytest.mark.parametrize("chunk", [0, -1])
def test_only_null_means_unlimited(chunk: int) -> None:
    with pytest.raises(ValueError, match=f"chunking.chunk_frames={chunk}"):
        ChunkContext(chunk, None)
    with pytest.raises(ValueError, match="chunking.left_chunks=-1"):
        ChunkContext(4, -1)
    with pytest.raises(ValueError, match="limits nothing"):
        ChunkContext(None, 2)


def test_an_evaluation_has_one_context() -> None:
    assert fixed_context(ChunkingConfig(kind=ChunkingKind.fixed, chunk_frames=8, left_chunks=2)).left_frames == 16
    with pytest.raises(ValueError, match="chunking=fixed"):
        fixed_context(DYNAMIC)


@pytest.mark.parametrize(("changes", "words"), [
    ({"kind": ChunkingKind.choices}, "chunking.weights"),
    ({"kind": ChunkingKind.choices, "choices": [[4]], "weights": [1.0]}, "pair"),
    ({"chunked_probability": 1.5}, "chunking.chunked_probability=1.5"),
    ({"min_chunk_frames": 9, "max_chunk_frames": 8}, "chunking.min_chunk_frames=9"),
    ({"kind": ChunkingKind.full, "chunk_frames": 8}, "chunking=fixed"),
])  # fmt: skip
def test_impossible_distributions_are_refused_by_name(changes: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ChunkingConfig(**changes)


def test_labels() -> None:
    assert [c.label for c in (FULL, ChunkContext(8, None), ChunkContext(16, 2))] == ["full", "320ms", "640ms-left2"]
