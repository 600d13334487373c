"""The table of a context grid is the one that papers print, from exactly the metrics of its evaluations."""

import io
import json
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import pytest

from chunkwise.evaluation.config import ContextGridConfig
from chunkwise.evaluation.grid import ContextGrid, show_grid, write_grid
from chunkwise.evaluation.run_folder import StoredMetrics
from chunkwise.models.context import FULL, ChunkContext

METRICS = StoredMetrics(
    utterances=2, words=1000, substitutions=0, deletions=0, insertions=0, sentence_errors=0, characters=0,
    character_errors=0, wer=0.0, wer_interval=(0.0, 0.0), cer=None, audio_s=1.0,
)  # fmt: skip


def rates(context: ChunkContext) -> StoredMetrics:
    """Another number of errors in each context."""
    errors = (
        20
        if context == FULL
        else 10 * (context.chunk_frames or 0) + (9 if context.left_chunks is None else context.left_chunks)
    )
    wer = errors / 1000
    return replace(METRICS, substitutions=errors, wer=wer, wer_interval=(wer / 2, 2 * wer))


GRID = ContextGrid(
    "yesno test",
    {c: rates(c) for c in ContextGridConfig(chunk_frames=[8, 4], left_chunks=[None, 2, 1]).contexts},
)


def test_left_contexts_run_down_and_chunk_sizes_across_as_asked_for_with_full_context_above() -> None:
    blocks = show_grid(GRID).split("\n\n")
    assert blocks[0].endswith("of 1,000 words in 2 utterances.")
    assert blocks[1] == "Full context: **2.00 %** (1.00 to 4.00 %)."
    assert blocks[2].splitlines() == [
        "| left context | 320 ms | 160 ms |",
        "| --- | --- | --- |",
        "| unlimited | 8.90 % | 4.90 % |",
        "| 2 chunks | 8.20 % | 4.20 % |",
        "| 1 chunk | 8.10 % | 4.10 % |",
    ]
    assert blocks[4].splitlines()[4] == "| 1 chunk | 4.05 to 16.20 % | 2.05 to 8.20 % |"


def test_the_files_hold_every_context_once(tmp_path: Path) -> None:
    write_grid(tmp_path, GRID)
    content = json.loads((tmp_path / "contexts.json").read_text(encoding="utf-8"))
    assert (content["title"], content["words"]) == ("yesno test", 1000)
    found = {(row["chunk_frames"], row["left_chunks"]): row for row in content["contexts"]}
    assert len(found) == len(content["contexts"]) == 7
    assert found[None, None]["wer"] == 0.02
    assert found[8, 2] == {
        "context": "320ms-left2", "chunk_frames": 8, "left_chunks": 2, "chunk_ms": 320, "left_ms": 640,
        "substitutions": 82, "deletions": 0, "insertions": 0, "sentence_errors": 0,
        "wer": 0.082, "wer_interval": [0.041, 0.164],
    }  # fmt: skip
    assert found[4, None]["left_ms"] is None
    assert (tmp_path / "contexts.md").read_text(encoding="utf-8") == f"# yesno test\n\n{show_grid(GRID)}\n"


def test_the_picture_shows_more_errors_darker_and_depends_on_the_rates_alone(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_grid(tmp_path / name, GRID)
    assert (tmp_path / "one" / "contexts.png").read_bytes() == (tmp_path / "two" / "contexts.png").read_bytes()
    pixels = matplotlib.image.imread(io.BytesIO((tmp_path / "one" / "contexts.png").read_bytes()))
    line = pixels[int(0.72 * len(pixels)), :, :3].mean(axis=1)  # through the row of 2 chunks
    worse, better = line[int(0.45 * len(line))], line[int(0.95 * len(line))]
    assert worse < better - 0.2


def test_undefined_rates_say_so(tmp_path: Path) -> None:
    nothing = replace(METRICS, words=0, wer=None, wer_interval=None)
    grid = ContextGrid("t", {FULL: nothing, ChunkContext(4, None): nothing})
    write_grid(tmp_path, grid)
    assert "Full context: **n/a**." in show_grid(grid)
    assert "| unlimited | n/a |" in show_grid(grid)
    assert json.loads((tmp_path / "contexts.json").read_text())["contexts"][1]["wer"] is None


@pytest.mark.parametrize(
    ("chunk_frames", "left_chunks", "message"),
    [
        ([8, 0], [None], r"eval\.contexts\.chunk_frames=\[8,0\] holds 0, which must be 1 or more"),
        ([8], [None, -1], r"eval\.contexts\.left_chunks=\[null,-1\] holds -1, which must be 0 or more"),
        ([8, 8], [None], r"chunk_frames=\[8,8\] names a value twice"),
        ([8], [None, None], r"left_chunks=\[null,null\] names a value twice"),
        ([8], [], r"left_chunks=\[\] leaves no context"),
        ([], [2], r"left_chunks=\[2\] needs chunk sizes; set eval\.contexts\.chunk_frames too"),
    ],
)
def test_what_is_no_grid_is_refused(chunk_frames: list[int], left_chunks: list[int | None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ContextGridConfig(chunk_frames=chunk_frames, left_chunks=left_chunks)


def test_without_chunk_sizes_there_is_no_grid() -> None:
    assert ContextGridConfig().contexts == []
    assert ContextGridConfig(chunk_frames=[4], left_chunks=[0]).contexts == [FULL, ChunkContext(4, 0)]
