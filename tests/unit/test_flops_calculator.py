"""FLOPs by hand: every number below is a product written out from the model's sizes. Real models are in
tests/oracle.
"""

from __future__ import annotations

import json
from itertools import product

import pytest

from flagscale_perf.flops.tape import CORE_FORMS
from flagscale_perf.flops_calculator import (
    FAMILIES,
    ModelShape,
    Packed,
    StepFlops,
    count,
    step_flops,
)

# h 4, 2 heads of width 2, feed-forward 8 without a gate, vocabulary 16, one layer
TINY = {
    "num_layers": 1,
    "hidden_size": 4,
    "num_attention_heads": 2,
    "ffn_hidden_size": 8,
    "padded_vocab_size": 16,
}
MIXTRAL = {
    "num_layers": 2, "hidden_size": 64, "num_attention_heads": 8, "group_query_attention": True,
    "num_query_groups": 2, "ffn_hidden_size": 224, "num_experts": 8, "moe_router_topk": 2, "swiglu": True,
    "padded_vocab_size": 512, "normalization": "RMSNorm",
    "add_bias_linear": False, "position_embedding_type": "rope", "untie_embeddings_and_output_weights": True,
}  # fmt: skip


def shape(*parts, **more):
    args = {}
    for part in (*parts, more):
        args |= part
    return ModelShape.from_args(args)


def trained(fwd, recompute=0, padding=0):
    return {"fwd": fwd, "bwd": 2 * fwd, "recompute": recompute, "padding": padding}


def test_mixtral_by_hand():
    tokens, pairs = 2 * 64, 2 * 64 * 64
    table = count(shape(MIXTRAL), 2, 64).as_dict()
    assert table.pop("core") == "recurrent"
    assert table.pop("totals_by_core") == dict.fromkeys(CORE_FORMS, table["totals"])
    assert table == {
        "family": "mixtral",
        "batch_size": 2,
        # embedding and output 2 x 512 x 64; a layer: norms 2 x 64, qkv 64 x 96, out 64 x 64, router 64 x 8, 8
        # experts of 3 x 64 x 224
        "parameters": 2 * 512 * 64 + 64 + 2 * (2 * 64 + 64 * 96 + 64 * 64 + 64 * 8 + 8 * 3 * 64 * 224),
        "totals": {
            "model_flops_causal_half": 186_384_384 - 3 * 2 * 2_097_152 // 2,
            "model_flops_full_attention": 186_384_384,
            "model_flops_visible_pairs": 186_384_384 - 3 * 2 * 4 * 64 * 2 * (64 * 64 - 64 * 65 // 2),
            "model_flops_causal_half_packed": None,
            "recompute_flops_causal_half": 0,
            "recompute_flops_full_attention": 0,
            "hardware_flops_causal_half": 180_092_928,
            "hardware_flops_full_attention": 186_384_384,
        },
        "components": {
            "qkv_proj": trained(2 * (2 * tokens * 64 * 96)),
            "core_attention": trained(2 * (4 * pairs * 64)),
            "out_proj": trained(2 * (2 * tokens * 64 * 64)),
            "moe_router": trained(2 * (2 * tokens * 64 * 8)),
            "moe_routed_experts": trained(2 * (2 * tokens * 2 * 3 * 64 * 224)),
            "logits": trained(2 * tokens * 64 * 512),
        },
    }


def test_a_dense_layer_by_hand():
    table = count(shape(TINY), 1, 2)
    assert table.components == {
        "qkv_proj": trained(2 * 2 * 4 * 12),
        "core_attention": trained(2 * (2 + 2) * 2 * 4),
        "out_proj": trained(2 * 2 * 4 * 4),
        "mlp": trained(2 * 2 * 2 * 4 * 8),
        "logits": trained(2 * 2 * 4 * 16),
    }
    assert table.totals["model_flops_full_attention"] == 3 * (192 + 64 + 64 + 256 + 256)


@pytest.mark.parametrize(("activation", "matrices"), [("swiglu", 3), ("quick_geglu", 3), ("squared_relu", 2)])
def test_a_gate_is_a_third_matrix(activation, matrices):
    assert count(shape(TINY, {activation: True}), 1, 2).components["mlp"] == trained(2 * 2 * matrices * 4 * 8)


def test_head_width_is_kv_channels_and_groups_need_their_switch():
    wide = count(shape(TINY, kv_channels=3, num_query_groups=1), 1, 2).components
    assert (wide["qkv_proj"], wide["out_proj"]) == (trained(2 * 2 * 4 * (3 * 2 * 3)), trained(2 * 2 * 6 * 4))
    grouped = count(
        shape(TINY, kv_channels=3, num_query_groups=1, group_query_attention=True), 1, 2
    ).components
    assert grouped["qkv_proj"] == trained(2 * 2 * 4 * (2 * 3 + 2 * 3))
    assert grouped["core_attention"] == wide["core_attention"] == trained(4 * 2 * (3 + 3) * 2)


def test_output_gate_is_one_more_block_of_queries():
    assert count(shape(TINY, attention_output_gate=True), 1, 2).components["qkv_proj"] == trained(
        2 * 2 * 4 * (2 * 4 + 2 * 4)
    )


def test_latent_attention_by_hand():
    mla = {
        "multi_latent_attention": True, "q_lora_rank": 3, "kv_lora_rank": 5, "qk_head_dim": 6,
        "qk_pos_emb_head_dim": 2, "v_head_dim": 7,
    }  # fmt: skip
    components = count(shape(TINY, mla), 1, 2).components
    assert {name: one for name, one in components.items() if name not in ("mlp", "logits")} == {
        "qkv_proj.q_down_proj": trained(2 * 2 * 4 * 3),
        "qkv_proj.q_up_proj": trained(2 * 2 * 3 * (2 * 8)),
        "qkv_proj.kv_down_proj": trained(2 * 2 * 4 * (5 + 2)),
        "qkv_proj.kv_up_proj": trained(2 * 2 * 5 * (2 * 13)),
        "core_attention": trained(4 * 2 * (8 + 7) * 2),
        "out_proj": trained(2 * 2 * (2 * 7) * 4),
    }
    direct = count(shape(TINY, mla, q_lora_rank=None), 1, 2).components
    assert direct["qkv_proj.q_proj"] == trained(2 * 2 * 4 * (2 * 8))


def test_experts_shared_gated_latent_by_hand():
    moe = {
        "num_experts": 6, "moe_router_topk": 3, "moe_ffn_hidden_size": 5,
        "moe_shared_expert_intermediate_size": 7, "moe_shared_expert_gate": True, "moe_latent_size": 3,
    }  # fmt: skip
    components = count(shape(TINY, moe), 1, 2).components
    assert {name: one for name, one in components.items() if name.startswith("moe")} == {
        "moe_router": trained(2 * 2 * 4 * 6),
        "moe_routed_experts": trained((2 * 3) * 2 * 2 * 3 * 5),
        "moe_shared_experts": trained(2 * 2 * 2 * 4 * 7),
        "moe_shared_expert_gate": trained(2 * 2 * 4 * 1),
        "moe_latent_proj": trained(2 * 2 * 2 * 4 * 3),
    }


def test_further_prediction_is_a_layer_of_the_last_kind():
    components = count(
        shape(TINY, num_layers=2, mtp_num_layers=2, num_experts=2, moe_layer_freq=[0, 1]), 1, 2
    ).components
    assert components["mlp"] == trained(256)
    assert {name: one for name, one in components.items() if name.startswith("mtp")} == {
        "mtp_eh_proj": trained(2 * (2 * 2 * 8 * 4)),
        "mtp_qkv_proj": trained(2 * 192),
        "mtp_core_attention": trained(2 * 64),
        "mtp_out_proj": trained(2 * 64),
        "mtp_moe_router": trained(2 * (2 * 2 * 4 * 2)),
        "mtp_moe_routed_experts": trained(2 * (2 * 2 * 2 * 2 * 4 * 8)),
        "mtp_logits": trained(2 * 256),
    }


class TestCapacity:
    PADDED = {"moe_pad_expert_input_to_capacity": True, "num_experts": 4, "moe_router_topk": 1}
    ROW = 2 * 2 * 4 * 8  # of one expert, forward

    def table(self, factor, **more):
        args = {"moe_expert_capacity_factor": factor, "micro_batch_size": 1}
        return count(shape(TINY, self.PADDED, args, more), 2, 6)

    def test_padding_is_apart_from_what_the_model_needs(self):
        # The 6 tokens of a micro-batch go to 4 experts: ceil(6 / 4 * 1.5) = 3 places each, so 12 rows
        # instead of 6, in each of 2 micro-batches.
        table = self.table(1.5)
        needed, padding = 2 * 6 * self.ROW, 3 * 2 * (12 - 6) * self.ROW
        assert table.components["moe_routed_experts"] == trained(needed, padding=padding)
        totals = table.totals
        assert totals["hardware_flops_full_attention"] - totals["model_flops_full_attention"] == padding

    def test_what_is_repeated_is_repeated_with_its_padding(self):
        table = self.table(1.5, recompute_granularity="selective", recompute_modules=["moe"])
        needed, padding = 2 * 6 * self.ROW, 3 * 2 * (12 - 6) * self.ROW
        assert table.components["moe_routed_experts"] == trained(needed, 2 * 12 * self.ROW, padding)

    def test_tokens_that_find_no_place_are_not_multiplied(self):
        # ceil(6 / 4 * 0.5) = 1 place each: 4 rows of 6
        assert self.table(0.5).components["moe_routed_experts"] == trained(
            2 * 6 * self.ROW, padding=-3 * 2 * (6 - 4) * self.ROW
        )

    @pytest.mark.parametrize("factor", [0.5, 1.0, 1.5])
    @pytest.mark.parametrize(
        "recompute", [{}, {"recompute_granularity": "selective", "recompute_modules": ["moe"]}]
    )
    def test_the_parts_add_up_to_the_totals(self, factor, recompute):
        table = self.table(factor, **recompute)
        sums = {part: sum(parts[part] for parts in table.components.values()) for part in trained(0)}
        assert sums["fwd"] + sums["bwd"] == table.totals["model_flops_full_attention"]
        assert sums["recompute"] == table.totals["recompute_flops_full_attention"]
        assert sum(sums.values()) == table.totals["hardware_flops_full_attention"]


class TestRecompute:
    def test_full_repeats_layers_and_never_the_logits(self):
        full = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
        components = count(shape(TINY, full), 1, 2).components
        assert components["mlp"] == trained(256, recompute=256)
        assert components["core_attention"] == trained(64, recompute=64)
        assert components["logits"] == trained(256)

    def test_block_repeats_the_first_layers_of_every_stage(self):
        block = {
            "recompute_granularity": "full",
            "recompute_method": "block",
            "recompute_num_layers": 1,
            "pipeline_model_parallel_size": 2,
        }
        assert count(shape(TINY, block, num_layers=6), 1, 2).components["mlp"] == trained(
            6 * 256, recompute=2 * 256
        )

    def test_totals_by_hand(self):
        selective = {"recompute_granularity": "selective", "recompute_modules": ["core_attn", "mlp"]}
        totals = count(shape(TINY, selective), 1, 2).totals
        assert totals["recompute_flops_full_attention"] == 64 + 256
        assert totals["recompute_flops_causal_half"] == 32 + 256
        assert totals["hardware_flops_causal_half"] == totals["model_flops_causal_half"] + 32 + 256

    def test_what_varies_by_stage_leaves_the_hardware_unknown(self):
        varying = shape(TINY, recompute_granularity_per_stage_micro_batch=[[1, 1, 0]])
        model = 3 * (192 + 32 + 64 + 256 + 256)
        assert step_flops(varying, 1, 2) == StepFlops(model, None)
        assert count(varying, 1, 2).totals["hardware_flops_full_attention"] is None


class TestFrozen:
    def test_adapters_by_hand(self):
        table = count(shape(TINY, peft_type="lora", lora_dim=1, lora_target_modules=["linear_qkv"]), 1, 2)
        down, up = 2 * 2 * 4 * 1, 2 * 2 * 1 * 12
        assert table.components == {
            "qkv_proj": {"fwd": 192, "bwd": 0, "recompute": 0, "padding": 0},  # nothing before it is trained
            "lora": {"fwd": down + up, "bwd": down + 2 * up, "recompute": 0, "padding": 0},
            "core_attention": trained(64),
            "out_proj": {"fwd": 64, "bwd": 64, "recompute": 0, "padding": 0},
            "mlp": {"fwd": 256, "bwd": 256, "recompute": 0, "padding": 0},
            "logits": {"fwd": 256, "bwd": 256, "recompute": 0, "padding": 0},
        }

    def test_attention_below_the_first_adapter_has_no_backward(self):
        components = count(
            shape(TINY, peft_type="lora", lora_dim=1, lora_target_modules=["linear_fc1"]), 1, 2
        ).components
        assert [components[name]["bwd"] for name in ("qkv_proj", "core_attention", "out_proj", "mlp")] == [
            0,
            0,
            0,
            128,
        ]

    def test_frozen_bottom_layers_have_no_backward(self):
        components = count(
            shape(TINY, num_layers=3, frozen=["embedding", "layers.0", "layers.1"]), 1, 2
        ).components
        assert components["mlp"] == {"fwd": 3 * 256, "bwd": 2 * 256, "recompute": 0, "padding": 0}

    def test_a_frozen_layer_above_a_trained_one_still_passes_gradients_down(self):
        components = count(shape(TINY, num_layers=2, frozen=["layers.1"]), 1, 2).components
        assert components["mlp"] == {"fwd": 2 * 256, "bwd": 2 * 256 + 256, "recompute": 0, "padding": 0}
        assert components["core_attention"] == trained(2 * 64)


class TestConventions:
    PER_PAIR = 3 * 2 * (2 + 2) * 2  # forward and backward, two products, 2 heads
    REST = 3 * (96 + 32 + 128 + 128)  # for each token: qkv, out, mlp, logits

    def totals(self, model, batch, length, packed=None):
        totals = count(model, batch, length, packed).totals
        return {
            name.removeprefix("model_flops_"): number
            for name, number in totals.items()
            if name.startswith("model")
        }

    def pairs_seen(self, length, left):
        return sum(
            key <= query and (left < 0 or query - key <= left)
            for query, key in product(range(length), repeat=2)
        )

    @pytest.mark.parametrize("length", [1, 7, 8])
    def test_one_document_a_sequence(self, length):
        rest = self.REST * 3 * length
        assert self.totals(shape(TINY), 3, length) == {
            "full_attention": rest + self.PER_PAIR * 3 * length * length,
            "causal_half": rest + self.PER_PAIR * 3 * length * length // 2,
            "visible_pairs": rest + self.PER_PAIR * 3 * self.pairs_seen(length, -1),
            "causal_half_packed": None,
        }

    @pytest.mark.parametrize("left", [0, 1, 3, 7, 8, 20])
    def test_a_window(self, left):
        windowed = shape(TINY, window_size=(left, 0))
        assert self.totals(windowed, 2, 8)[
            "visible_pairs"
        ] == self.REST * 16 + self.PER_PAIR * 2 * self.pairs_seen(8, left)
        assert self.totals(windowed, 2, 8)["causal_half"] == self.totals(shape(TINY), 2, 8)["causal_half"]

    def test_a_window_in_some_layers_only(self):
        windowed = shape(TINY, num_layers=3, window_size="2,0", window_attn_skip_freq=3)
        pairs = 2 * self.pairs_seen(8, 2) + self.pairs_seen(8, -1)
        rest = 3 * 8 * (3 * (96 + 32 + 128) + 128)
        assert self.totals(windowed, 1, 8)["visible_pairs"] == rest + self.PER_PAIR * pairs

    def test_packed_documents_see_only_themselves(self):
        packed = self.totals(shape(TINY), 2, 8, [3, 5, 7])  # one token of padding
        assert packed == {
            "full_attention": self.REST * 16 + self.PER_PAIR * 2 * 64,
            "causal_half": self.REST * 16 + self.PER_PAIR * 64,
            "visible_pairs": self.REST * 16 + self.PER_PAIR * (6 + 15 + 28),
            "causal_half_packed": self.REST * 16 + self.PER_PAIR * (9 + 25 + 49) // 2,
        }


class TestStep:
    def test_live_figures_are_causal_half(self):
        assert step_flops(shape(MIXTRAL), 2, 64) == StepFlops(180_092_928, 180_092_928)

    # per token: 96 + 32 + 128 + 128 forward; per pair 2 x 2 x 2 x 2; three times with the backward
    TOKEN, PAIR = 3 * 384, 3 * 16

    def test_packed_documents_by_hand(self):
        assert (
            step_flops(shape(TINY), 2, 8, Packed(15, 9 + 25 + 49)).model_flops
            == 15 * self.TOKEN + 83 * self.PAIR // 2
        )

    def test_without_their_tokens_padding_counts(self):
        assert (
            step_flops(shape(TINY), 2, 8, Packed(None, 83)).model_flops
            == 16 * self.TOKEN + 83 * self.PAIR // 2
        )

    def test_without_their_lengths_they_count_as_long_as_a_sequence(self):
        assert (
            step_flops(shape(TINY), 2, 8, Packed(15, None)).model_flops
            == 15 * self.TOKEN + 15 * 8 * self.PAIR // 2
        )

    @pytest.mark.parametrize(
        "args",
        [
            TINY,
            MIXTRAL,
            TINY
            | {
                "num_layers": 3,
                "recompute_granularity": "full",
                "recompute_method": "block",
                "recompute_num_layers": 1,
            },
            TINY
            | {
                "num_layers": 2,
                "mtp_num_layers": 1,
                "num_experts": 2,
                "moe_layer_freq": [0, 1],
                "window_size": (2, 0),
            },
            TINY | {"peft_type": "lora", "lora_dim": 1, "lora_target_modules": ["linear_qkv"]},
        ],
    )
    def test_sums_of_lengths_give_what_the_lengths_give(self, args):
        model, lengths = shape(args), [3, 5, 7, 1]
        sums = Packed(16, 9 + 25 + 49 + 1)
        assert (
            step_flops(model, 2, 8, sums).model_flops
            == count(model, 2, 8, lengths).totals["model_flops_causal_half_packed"]
        )
        assert step_flops(model, 2, 8, Packed(16, 2 * 64)) == step_flops(model, 2, 8)

    def test_the_hardwares_flops_are_recomputed_ones_too(self):
        full = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
        once = 15 * (96 + 32 + 128) + 83 * 16 // 2
        packed = step_flops(shape(TINY, full), 2, 8, Packed(15, 83))
        assert packed.hardware_flops == packed.model_flops + once

    def test_experts_padded_to_an_unknown_capacity_leave_the_hardware_unknown(self):
        padded = {"moe_pad_expert_input_to_capacity": True, "moe_expert_capacity_factor": 1.5}
        model = shape(TINY, padded, num_experts=4, moe_router_topk=1, micro_batch_size=1)
        assert step_flops(model, 2, 8).hardware_flops is not None
        assert step_flops(model, 2, 8, Packed(15, 83)).hardware_flops is None
        assert (
            step_flops(
                shape(TINY, recompute_granularity_per_stage_micro_batch=[[1, 1, 0]]), 2, 8, Packed(15, 83)
            ).hardware_flops
            is None
        )


class TestModelShape:
    def test_equal_arguments_are_one_key_and_go_to_json(self):
        first, second = shape(MIXTRAL), shape(MIXTRAL)
        assert first == second
        assert hash(first) == hash(second)
        assert json.loads(json.dumps(first.as_dict()))["family"] == "mixtral"

    @pytest.mark.parametrize(
        ("args", "family"),
        [
            ({}, "gpt"),
            ({"swiglu": True, "normalization": "RMSNorm"}, "llama"),
            (
                {"swiglu": True, "normalization": "RMSNorm", "multiple_of": 4, "hidden_dim_multiplier": 1.3},
                "aquila",
            ),
            ({"swiglu": True, "normalization": "RMSNorm", "tokenizer_type": "AquilaTokenizerFS"}, "aquila"),
            ({"swiglu": True, "add_qkv_bias": True, "add_bias_linear": False}, "qwen"),
            ({"swiglu": True, "qk_layernorm": True}, "qwen"),
            ({"num_experts": 4, "qk_layernorm": True}, "qwen"),
            ({"num_experts": 4}, "mixtral"),
            (
                {
                    "multi_latent_attention": True,
                    "kv_lora_rank": 4,
                    "qk_head_dim": 2,
                    "qk_pos_emb_head_dim": 2,
                    "v_head_dim": 2,
                },
                "deepseek",
            ),
        ],
    )
    def test_families_are_told_apart(self, args, family):
        assert shape(TINY, args).family == family

    def test_a_hugging_face_type_belongs_to_one_family(self):
        types = [name for family in FAMILIES for name in family.hf_types]
        assert len(types) == len(set(types))
