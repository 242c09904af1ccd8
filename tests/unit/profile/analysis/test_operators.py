"""What kind of work an operator does."""

from __future__ import annotations

import pytest

from flagscale_perf.profile.analysis.operators import (
    forget_operators,
    kind_of,
    part_of,
    register_module,
    register_operator,
)
from flagscale_perf.profile.records import Sort


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("aten::mm", "matmul"),
        ("aten::addmm", "matmul"),
        ("_C::onednn_mm", "matmul"),
        ("_C::weight_packed_linear", "matmul"),
        ("MmBackward0", "matmul"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "matmul"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("vllm::unified_attention_with_output", "attention"),
        ("aten::native_layer_norm", "norm"),
        ("NativeLayerNormBackward0", "norm"),
        ("aten::_fused_rms_norm", "norm"),
        ("aten::silu", "activation"),
        ("aten::_softmax", "activation"),
        ("aten::_log_softmax", "loss"),
        ("aten::embedding", "embedding"),
        ("aten::embedding_dense_backward", "embedding"),
        ("aten::add_", "elementwise"),
        ("aten::mul", "elementwise"),
        ("aten::rsqrt", "elementwise"),
        ("aten::copy_", "copy"),
        ("aten::cat", "copy"),
        ("aten::empty", "copy"),
        ("aten::sum", "reduction"),
        ("aten::mean", "reduction"),
        ("aten::view", "view"),
        ("aten::t", "view"),
        ("aten::transpose", "view"),
        ("gloo:all_reduce", "communication"),
        ("_C::shm_allreduce", "communication"),
        ("aten::_fused_adamw_", "optimizer"),
        ("CompiledFxGraph 3", "compiled"),
        ("mylib::something", "other"),
    ],
)
def test_by_name(op: str, kind: str) -> None:
    assert kind_of(op) == kind


def test_what_a_row_says_besides_its_name() -> None:
    assert kind_of("", sort=Sort.HOST) == "host"
    assert kind_of("", sort=Sort.ENGINE) == "engine"
    assert kind_of("anything", sort=Sort.COMMUNICATION) == "communication"
    assert kind_of("aten::add_", "optimizer") == "optimizer"
    assert kind_of("aten::_softmax", "forward", "model.layers.0.self_attn") == "attention"
    assert kind_of("aten::bmm", "forward", "model.layers.0.self_attn") == "attention"
    assert kind_of("aten::mm", "forward", "model.layers.0.self_attn") == "matmul"


@pytest.mark.parametrize(
    ("op", "module", "kind"),
    [
        # Qwen3's RMSNorm is Python: to float32, pow, mean, add, rsqrt, mul, mul, to bf16
        ("aten::pow", "model.layers.0.input_layernorm", "norm"),
        ("aten::mean", "model.layers.0.input_layernorm", "norm"),
        ("aten::copy_", "model.layers.0.self_attn.q_norm", "norm"),
        ("MulBackward0", "model.norm", "norm"),
        ("aten::rsqrt", "decoder.final_layernorm", "norm"),
        ("aten::add", "transformer.h.0.ln_1", "norm"),
        ("aten::view", "model.norm", "view"),
        ("aten::mm", "model.norm", "matmul"),
        ("aten::cos", "model.rotary_emb", "attention"),
        ("aten::cat", "rotary_pos_emb", "attention"),
        ("aten::tanh", "transformer.h.0.mlp.act", "activation"),
        ("aten::mul", "transformer.h.0.mlp.act", "activation"),
        ("aten::mul", "model.layers.0.mlp", "elementwise"),
        ("aten::mul", "model.normalizer", "elementwise"),
        ("aten::add", "model.layers.0", "elementwise"),
    ],
)
def test_arithmetic_of_a_module_that_is_known_for_its_work(op: str, module: str, kind: str) -> None:
    assert kind_of(op, "forward", module) == kind


def test_a_module_of_ones_own() -> None:
    register_module("gate", "routing")
    assert kind_of("aten::mul", "forward", "model.layers.0.mlp.gate") == "routing"
    assert kind_of("aten::mm", "forward", "model.layers.0.mlp.gate") == "matmul"
    forget_operators()
    assert kind_of("aten::mul", "forward", "model.layers.0.mlp.gate") == "elementwise"


def test_a_new_one_goes_before_the_table() -> None:
    register_operator("aten::mm", "my kind")
    assert kind_of("aten::mm") == "my kind"
    forget_operators()
    assert kind_of("aten::mm") == "matmul"


def test_what_the_requirement_calls_a_modules_work() -> None:
    assert part_of("model.layers.0.self_attn.q_proj", "matmul") == "linear_qkv"
    assert part_of("decoder.layers.0.self_attention.linear_qkv", "matmul") == "linear_qkv"
    assert part_of("model.layers.0.self_attn.o_proj", "matmul") == "linear_output"
    assert part_of("model.layers.0.self_attn", "attention") == "attention_compute"
    assert part_of("model.layers.0.mlp", "activation") == "activation"
