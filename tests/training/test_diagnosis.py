"""Training that overflows ends by naming the place, the utterances and what to try; nothing has moved by then."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import ALONE, FP16, FP32, TWO, run, run_spoilt_as_one_of_two, tiny_objective, tiny_parts
from torch import Tensor

from chunkwise.losses.objective import LossConfig, Objective
from chunkwise.nn.attention import RotaryAttention, SelfAttention
from chunkwise.training.diagnosis import OVERFLOW
from chunkwise.training.distributed import open_world
from chunkwise.training.launching import launch
from chunkwise.training.loop import TrainingConfig
from chunkwise.training.precision import GradScalerConfig, PrecisionConfig, PrecisionKind
from chunkwise.training.roll_call import RankError
from chunkwise.training.step import Window

SHORT = TrainingConfig(max_steps=6, validate_every=0)
ATTENTION = "model.encoder.layers.0.attention"


class UnscaledAttention(RotaryAttention):
    """Scores as plain products: what the square root of the head size is for."""

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None, positions: Any) -> Tensor:
        queries, keys, values = (x.transpose(1, 2) for x in (queries, keys, values))
        scores = queries @ keys.transpose(2, 3)
        if visible is not None:
            scores = scores.masked_fill(~visible, -math.inf)
        return (scores.softmax(dim=-1) @ values).transpose(1, 2)


def objective_with(attention: SelfAttention) -> Objective:
    """Queries and keys whose product is 115,200 at distance 0: beyond fp16, but not once scaled."""
    objective = tiny_objective(LossConfig())
    with torch.no_grad():
        attention.project_in.weight.normal_(std=0.01)
        assert attention.project_in.bias is not None
        attention.project_in.bias[:32] = 120.0
    layer = objective.model.encoder.layers[0]
    layer.attention = attention
    return objective


def stopped(
    folder: Path, precision: PrecisionConfig, objective: Objective | None = None, bad: frozenset[int] = frozenset()
) -> tuple[str, dict[str, Any]]:
    """The sentence that a run ends with, and what it leaves."""
    parts = tiny_parts(open_world(ALONE), objective, precision=precision)
    before = {name: weight.clone() for name, weight in parts.objective.state_dict().items()}
    with pytest.raises(ValueError, match=r"overflow\.json") as caught:
        run(folder, SHORT, parts=parts, bad=bad)
    if not any(record["loss"] for record in rows(folder)[:-1]):  # no step was taken
        for name, weight in parts.objective.state_dict().items():
            assert torch.equal(weight.nan_to_num(7.0), before[name].nan_to_num(7.0)), name
        assert all(parameter.grad is None for parameter in parts.objective.parameters())
        assert not parts.optimizer.state
    return str(caught.value), json.loads((folder / OVERFLOW).read_text())


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_an_attention_without_scaling_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentence, content = stopped(tmp_path, FP16, objective_with(UnscaledAttention(16, 2, 0.0)))
    found = content["batches"][0]["output"]
    assert (found["module"], found["tensor"]) == (ATTENTION, f"input of {ATTENTION}.project_out")
    assert found["fp32_is_finite"]
    assert -10 < found["fp32_low"] < found["fp32_high"] < 10
    assert content["batches"][0]["utterances"] == ["0-3-0", "0-3-1"]
    assert content["batches"][0]["not_finite"] == ["0-3-0", "0-3-1"]
    assert content["batches"][0]["gradient"] is not None
    assert content["scale_history"] == [{"step": 0, "scale": scale} for scale in (64, 32, 16, 8)]
    assert content["try"][0] == "precision=bf16"
    assert any(f"products inside {ATTENTION} that are scaled" in text for text in content["try"])
    assert "4 steps in a row" in sentence
    assert ATTENTION in sentence
    said = capsys.readouterr().out
    for words in (f"first output: {ATTENTION} (", "0-3-0, 0-3-1", "64 at step 0, 32 at step 0", "try: precision=bf16"):
        assert words in said, words


def test_the_same_queries_and_keys_pass_where_scores_are_scaled_first(tmp_path: Path) -> None:
    parts = tiny_parts(open_world(ALONE), objective_with(RotaryAttention(16, 2, 0.0)), precision=FP16)
    state, _ = run(tmp_path, replace(SHORT, max_steps=2), parts=parts)
    assert state.step == 2
    assert not (tmp_path / OVERFLOW).exists()


def test_a_loss_by_sum_is_found_at_the_logits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scaling = GradScalerConfig(init_scale=2.0**17, min_scale=2.0**16.5)
    precision = PrecisionConfig(kind=PrecisionKind.fp16, grad_scaler=scaling)
    _, mean = stopped(tmp_path / "mean", precision, tiny_objective(LossConfig()))
    monkeypatch.setattr(Window, "share", lambda window, world: 1.0)
    sentence, content = stopped(tmp_path / "sum", precision, tiny_objective(LossConfig()))
    batch = content["batches"][0]
    assert batch["output"] is None
    assert batch["not_finite"] == []
    assert (batch["gradient"]["module"], batch["gradient"]["tensor"]) == ("model.joiner.output", "its gradient")
    assert max(-batch["gradient"]["fp32_low"], batch["gradient"]["fp32_high"]) > 65504
    assert mean["batches"][0]["gradient"] != batch["gradient"]
    assert "the loss scale fell to 65536, below precision.grad_scaler.min_scale=92681.9" in sentence
    assert any("divided by its tokens" in text for text in content["try"])


@pytest.mark.parametrize("kind", [PrecisionKind.fp32, PrecisionKind.bf16])
def test_a_loss_that_is_not_finite_stops_before_anything_moves(tmp_path: Path, kind: PrecisionKind) -> None:
    objective = tiny_objective()
    with torch.no_grad():
        objective.model.joiner.output.weight[1] = math.nan
    sentence, content = stopped(tmp_path, PrecisionConfig(kind=kind), objective)
    assert f"the loss is nan in {kind}" in sentence
    batch = content["batches"][0]
    assert (batch["output"]["module"], batch["output"]["tensor"]) == ("model.joiner.output", "its output")
    assert not batch["output"]["fp32_is_finite"]
    assert batch["utterances"] == batch["not_finite"] == ["0-0-0", "0-0-1"]
    assert content["loss"] == "nan"
    assert "fp32 breaks too" in content["try"][0]
    assert len(rows(tmp_path)) == 1


def test_a_later_window_stops_with_the_weights_of_the_step_before(tmp_path: Path) -> None:
    parts = tiny_parts(open_world(ALONE), precision=FP32)
    run(tmp_path / "whole", replace(SHORT, stop_at=2), parts=parts)
    other = tiny_parts(open_world(ALONE), precision=FP32)
    with pytest.raises(ValueError, match=r"the loss is nan in fp32.*the weighted loss of 0-2-0, 0-2-1 is not"):
        run(tmp_path / "spoilt", SHORT, parts=other, bad=frozenset({2}))
    weights = other.objective.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in parts.objective.state_dict().items())
    content = json.loads((tmp_path / "spoilt" / OVERFLOW).read_text())
    assert (content["step"], content["batches"][0]["not_finite"]) == (3, ["0-2-0", "0-2-1"])


def test_all_ranks_stop_together_and_the_spoilt_one_is_named(tmp_path: Path) -> None:
    config = replace(SHORT, max_steps=4)
    with pytest.raises(RankError, match=r"ValueError: the loss is nan in fp32.*overflow\.json says more"):
        launch(TWO, run_spoilt_as_one_of_two, str(tmp_path), config, FP32)
    (batch,) = json.loads((tmp_path / OVERFLOW).read_text())["batches"]
    assert (batch["rank"], batch["micro_batch"]) == (1, 0)
    assert batch["not_finite"] == ["0-3-0", "0-3-1"]
