"""Predicted with fake tensors, against what a real step allocates and computes."""

from __future__ import annotations

import functools
import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from flagscale_perf.profile.kineto import Session
from flagscale_perf.profile.prediction import Setup
from flagscale_perf.profile.standalone.fake_step import made_ready, optimizer_bytes, predict
from flagscale_perf.spine.errors import PerfError

B, S, LAYERS, HEADS, WIDTH = 2, 64, 4, 4, 64  # of the small Qwen3
TRAIN = Setup("small", B, S, "float32")
of_the_small_model = functools.cache(functools.partial(predict, config=None))


def measured_bytes(setup: Setup) -> int:
    """Held before a real step, and the most that its allocations come to, by torch's profiler."""
    ready = made_ready(setup, None)
    for _ in range(2):
        ready.run(nullcontext)
    held = (*ready.model.parameters(), *ready.model.buffers(), ready.ids)
    before = sum(each.nbytes for each in held) + optimizer_bytes(ready.optimizer)
    session = Session(memory=True)
    session.start()
    ready.run(nullcontext)
    session.stop()
    changes = session.events(1 << 40).allocations
    assert changes is not None
    return before + int(np.cumsum(changes.size_bytes).max())


@pytest.mark.parametrize(
    "setup",
    # float32: a CPU's products of bfloat16 take scratch memory of their own, as much as the processor wants
    [TRAIN, Setup("small", B, S, "float32", "none", is_inference=True)],
    ids=["train", "inference"],
)
def test_the_peak_of_a_real_step(setup: Setup) -> None:
    found = of_the_small_model(setup)
    assert found.peak_bytes == pytest.approx(measured_bytes(setup), rel=0.05)


def test_flops_are_the_formulas_and_the_scores_that_the_backward_makes_again() -> None:
    found = of_the_small_model(TRAIN)
    scores = LAYERS * 2 * B * HEADS * S * S * WIDTH
    assert found.flops_calculator is not None
    assert found.flops == found.flops_calculator + scores


def test_a_forward_pass_is_exactly_the_formulas() -> None:
    found = predict(Setup("small", B, S, "float32", "none", is_inference=True), None)
    assert found.flops == found.flops_calculator
    assert (found.gradient_bytes, found.optimizer_bytes) == (0, 0)


def test_what_is_held_for_parameters_gradients_and_optimizer() -> None:
    found = of_the_small_model(TRAIN)
    assert found.parameter_bytes == found.gradient_bytes == 4 * found.parameters
    assert 0 <= found.optimizer_bytes - 8 * found.parameters < 1000  # and a count of steps each
    assert sum(found.at_peak.values()) == found.peak_bytes


def test_a_configuration_of_ones_own(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "vocab_size": 100,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
            }
        )
    )
    for path in (config, tmp_path):
        found = predict(Setup("llama", 1, 8, "float32"), path)
        assert found.parameters == 2 * 100 * 32 + 32 * (32 + 16 + 16 + 32) + 3 * 32 * 64 + 3 * 32
    assert torch.get_default_dtype() == torch.float32


def test_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(PerfError, match="no model can be made of it"):
        predict(TRAIN, tmp_path)
