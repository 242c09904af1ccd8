"""A model that is divided among two ranks computes what it does whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from flagscale_perf.hosts.profiling.split_model import Stage, split_tensors
from flagscale_perf.spine.errors import PerfError
from tests.gloo_ranks import two_ranks
from tests.profiled_events import tiny_qwen3

CLOSE = 1e-4


class Mesh:
    """Of so many ranks."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks

    def size(self) -> int:
        """Ranks."""
        return self._ranks


def test_split_matrices_have_the_whole_models_loss_and_gradients(tmp_path: Path) -> None:
    parameters = {path for path, _ in tiny_qwen3().named_parameters()}
    for found in two_ranks("tests.split_ranks", tmp_path, "tensor"):
        assert found["own_loss"] == pytest.approx(found["loss"], rel=CLOSE)
        assert set(found["apart"]) == parameters
        assert max(found["apart"].values()) < CLOSE, found["apart"]


def test_stages_have_the_gradients_of_their_layers(tmp_path: Path) -> None:
    parameters = {path for path, _ in tiny_qwen3().named_parameters()}
    found = two_ranks("tests.split_ranks", tmp_path, "pipeline")
    first, last = (set(each["apart"]) for each in found)
    assert (first | last, first & last) == (parameters, set())
    assert max(apart for each in found for apart in each["apart"].values()) < CLOSE
    assert {path.split(".")[2] for path in last if "layers" in path} == {"1"}


def test_what_cannot_be_divided_is_refused_by_name() -> None:
    model: Any = tiny_qwen3()
    with pytest.raises(
        PerfError, match="--tp 3: the model's num_attention_heads, 4, is not a multiple of it"
    ):
        split_tensors(model, Mesh(3))
    with pytest.raises(PerfError, match="--pp 3: the model has 2 layers; give at most that many"):
        Stage(model, 0, 3)
    model.config.base_model_tp_plan = {"layers.*.mlp": "moe_experts"}
    with pytest.raises(PerfError, match="--tp: a 'qwen3' is split by moe_experts, which is not done here"):
        split_tensors(model, Mesh(2))
    model.config.base_model_tp_plan = None
    with pytest.raises(PerfError, match="--tp: transformers has no plan by which a 'qwen3' is split"):
        split_tensors(model, Mesh(2))
    model.model.layers, model.model.blocks = nn.ModuleList(), model.model.layers
    del model.model.layers
    with pytest.raises(PerfError, match="--pp 2: a 'qwen3' is not made of embed_tokens, layers, norm and"):
        Stage(model, 0, 2)
