"""What an analysis leaves behind can be read again and says what was found."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from chunkwise.analysis.comparison import Dependence
from chunkwise.analysis.dependencies import Analysis, DependencyConfig
from chunkwise.analysis.measurement import Strengths
from chunkwise.analysis.pictures import draw_dependences, pooled, relative_decades
from chunkwise.analysis.report import describe, summarise, write_matrices
from chunkwise.analysis.systems import System
from chunkwise.analysis.tokens import listened
from chunkwise.decoding.hypothesis import Hypothesis
from chunkwise.models.context import ChunkContext

PNG = b"\x89PNG\r\n\x1a\n"
VALUES = torch.tensor([[4.0, 1.0, 0.0, 0.0], [3.0, 0.0, 1e-3, 1e-12]], dtype=torch.float64)


def dependence(name: str = "frames_from_features", allowed: int = 3) -> Dependence:
    """Two outputs with blocks of two inputs; each may see the first `allowed`."""
    expected = torch.zeros(2, 4, dtype=torch.bool)
    expected[:, :allowed] = True
    system = System(
        name, "encoder frame", "feature frame", lambda inputs: inputs, expected, torch.tensor([0, 2]), stride=2
    )
    strengths = Strengths(VALUES, torch.arange(4), 1e-10, 0.0)
    return Dependence(system, strengths, replace(strengths, values=VALUES[:, [0, 2]], positions=torch.tensor([0, 2])))


def analysis(allowed: int = 3) -> Analysis:
    parts = {name: dependence(name, allowed) for name in ("frames_from_features", "emission_from_features")}
    return Analysis(ChunkContext(4, 1), parts, Hypothesis([5, 7], [0, 1], -1.0), torch.zeros(4, 3), 2680)


def test_the_summary_counts_reaches_and_violations() -> None:
    summary = summarise(analysis(), DependencyConfig(), "noise", lambda token: f"<{token}>")
    part = summary.dependences[0]
    assert (part.expected, part.seen, part.looked) == (
        6, {"gradient": 4, "perturbation": 3}, {"gradient": 4, "perturbation": 2},
    )  # fmt: skip
    assert (part.left, part.right, part.violations, part.unseen, part.contradictions) == (2, 0, 0, 2, 0)
    assert [(token.piece, token.emitted_ms, token.may_see) for token in summary.tokens] == [
        ("<5>", 40, "0-2"), ("<7>", 80, "0-2"),
    ]  # fmt: skip
    assert json.loads(json.dumps(asdict(summary)))["violations"] == 0
    assert "2 tokens, 0 violations" in describe(summary)


def test_the_summary_names_violations() -> None:
    summary = summarise(analysis(allowed=1), DependencyConfig(), "noise", str)
    assert summary.violations == 4
    assert summary.dependences[0].faults == (
        "encoder frame 0 on feature frames 1 (allowed: 0); encoder frame 1 on feature frames 2 (allowed: 0)"
    )


def test_contradictions_are_clear_ones_only() -> None:
    found = dependence()
    assert found.perturbation is not None
    faint = replace(found.perturbation, values=torch.tensor([[4.0, 1e-9], [3.0, 1e-3]], dtype=torch.float64))
    assert not replace(found, perturbation=faint).contradictions.any()
    strong = replace(found.perturbation, values=torch.tensor([[4.0, 1e-3], [3.0, 0.0]], dtype=torch.float64))
    other = replace(found, perturbation=strong)
    assert other.contradictions.nonzero().tolist() == [[0, 2], [1, 2]]
    with pytest.raises(ValueError, match="seen differently by gradients and pokes: encoder frame 0 on"):
        other.check()


def test_the_matrices_come_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.npz"
    write_matrices(analysis(), path)
    assert [file.name for file in path.parent.iterdir()] == ["a.npz"]
    with np.load(path) as stored:
        assert stored["frames_from_features.seen"].tolist() == (VALUES > 1e-10).tolist()
        assert stored["frames_from_features.expected"].sum() == 6
        assert stored["emission_from_features.perturbation_inputs"].tolist() == [0, 2]
        assert stored["hypothesis.tokens"].tolist() == [5, 7]


def test_pictures_are_drawn_with_and_without_violations(tmp_path: Path) -> None:
    draw_dependences(tmp_path / "a.png", [dependence()], "a $ and b $")
    draw_dependences(tmp_path / "b.png", [dependence(), dependence(allowed=1), dependence("path")], "three")
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)
    assert (tmp_path / "b.png").read_bytes().startswith(PNG)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.png", "b.png"]


def test_strengths_are_drawn_relative_to_their_row() -> None:
    decades = relative_decades(dependence())
    assert decades[0].tolist() == pytest.approx([6.0, 6.0 + np.log10(0.25), 0.0, 0.0])
    assert decades[1, 2] == pytest.approx(6.0 + np.log10(1e-3 / 3))
    assert pooled(torch.arange(1300.0)[None]).shape == (1, 434)


def test_what_was_listened_to_is_the_fewest_inputs_with_most_of_the_strength() -> None:
    strengths = Strengths(torch.tensor([[1.0, 8.0, 0.5, 0.5], [1.0, 1.0, 1.0, 1.0]]), torch.arange(4), 1e-5, 0.0)
    assert listened(strengths).int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert listened(strengths, share=0.5).int().sum(dim=1).tolist() == [1, 2]
