"""The same steps on a GPU, in every precision."""

from pathlib import Path

import pytest
import torch
from tiny import FORGIVING, FP16, run, tiny_objective, tiny_parts

from chunkwise.training.distributed import open_world
from chunkwise.training.loop import TrainingConfig
from chunkwise.training.precision import PrecisionConfig, PrecisionKind
from chunkwise.training.runtime import Device, RuntimeConfig

KINDS = [FORGIVING, PrecisionConfig(kind=PrecisionKind.bf16, patience=4), FP16]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("precision", KINDS, ids=lambda precision: precision.kind)
def test_every_precision_trains_and_drops_on_cuda(tmp_path: Path, precision: PrecisionConfig) -> None:
    with open_world(RuntimeConfig(device=Device.cuda)) as world:
        parts = tiny_parts(world, tiny_objective().to(world.device), precision=precision)
        bad = frozenset({1}) if precision.kind is not PrecisionKind.bf16 else frozenset()
        state, weights = run(tmp_path, TrainingConfig(max_steps=4, validate_every=0), world=world, parts=parts, bad=bad)
    assert (state.step, state.skipped) == (4, len(bad))
    assert all(weight.isfinite().all() for weight in weights.values())
