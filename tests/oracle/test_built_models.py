"""What a config.json says is counted as transformers builds it: weights, layers of experts, windows. Each
family with every key that changes one of them, as it is written by hand and as transformers writes it.
"""

from __future__ import annotations

import json
import os
import subprocess
from itertools import chain
from typing import Any

import pytest

from flagscale_perf.flops_calculator import ModelShape
from tests.oracle.built import LENGTH
from tests.oracle.comparison import REPO
from tests.oracle.hybrid_configurations import HYBRIDS
from tests.oracle.tower_configurations import DECODERS, TOWERS
from tests.processes import flagscale as fs
from tests.processes import warm

Config = dict[str, Any]

SIZES: Config = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 256,
}
EXPERTS: Config = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT: Config = SIZES | {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
# Heads enough for the classes' defaults of key-value heads.
MANY = {"num_attention_heads": 32, "hidden_size": 128}
FAMILIES: dict[str, Config] = {
    "deepseek_v2": LATENT | {"topk_method": "greedy"},
    "deepseek_v3": LATENT,
    "llama": SIZES,
    "mistral": SIZES,
    "mixtral": SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": SIZES,
    "qwen2_moe": SIZES | EXPERTS | {"shared_expert_intermediate_size": 48},
    "qwen3": SIZES | {"head_dim": 24},
    "qwen3_moe": SIZES | EXPERTS | {"head_dim": 16},
}
WINDOW: Config = {"use_sliding_window": True, "sliding_window": 5}
# Most families read some of them only.
OTHERS: Config = {
    "tie_word_embeddings": True,
    "attention_bias": True,
    "num_experts": 4,
    "mlp_only_layers": [1],
    "shared_expert_intermediate_size": 40,
    "n_shared_experts": 1,
}
KINDS = ["full_attention", "sliding_attention"] * 2
SAID: dict[str, Config] = {
    "plain": {},
    "attention_bias": {"attention_bias": True},
    "qkv_bias": {"qkv_bias": False},
    "tied": {"tie_word_embeddings": True},
    "window": WINDOW,
    "window of upper layers": WINDOW | {"max_window_layers": 2},
    "window by kinds": WINDOW | {"layer_types": KINDS},
    "window not used": {"sliding_window": 5, "use_sliding_window": False},
    "no window": {"sliding_window": None},
    "dense layers": {"mlp_only_layers": [1]},
    "every second": {"decoder_sparse_step": 2},
    "frequency": {"moe_layer_freq": 2},
    "further prediction": {"num_nextn_predict_layers": 1},
    "no query rank": {"q_lora_rank": None},
    "keys of others": OTHERS,
    "without groups": MANY | {"num_key_value_heads": ...},
    "without width": {"head_dim": ...},
    "without query rank": {"q_lora_rank": ...},
    "without first": {"first_k_dense_replace": ..., "num_hidden_layers": 5},
    "without experts": {name: ... for name in ("num_experts", "num_local_experts", "n_routed_experts")},
    "without shared": {"shared_expert_intermediate_size": ..., "n_shared_experts": ...},
    "without top k": {"num_experts_per_tok": ...},
    "names of gpt2": {"n_embd": 128, "n_layer": 9, "n_head": 2, "n_inner": 7, "n_positions": 8},
}
# Keys of other families that their classes have defaults for, by the section that has them.
LEFT_OUT = {
    "gpt2": ("", ("n_positions",)),
    "granitemoehybrid": ("", ("num_local_experts", "shared_intermediate_size")),
    "kimi_linear": ("", ("n_shared_experts",)),
    "llava": ("vision_config", ("image_size", "intermediate_size", "num_hidden_layers", "patch_size")),
    "nemotron_h": ("", ("mamba_head_dim", "n_groups")),
    "qwen3_vl_moe": (
        "text_config",
        ("moe_intermediate_size", "num_local_experts"),
    ),
}
# What cannot be built of these small ones: no default, or one that is larger than the rest.
UNBUILT = {
    ("deepseek_v2", "without top k"),
    ("deepseek_v3", "without top k"),
    ("qwen3_moe", "without top k"),
} | {("deepseek_v3", "without groups")}


def made(base: Config, said: Config) -> Config:
    """The base with these keys; those that are `...` left out."""
    return {name: value for name, value in (base | said).items() if value is not ...}


def cases() -> dict[str, Config]:
    plain = {
        f"{family}: {name}": {"model_type": family} | made(base, said)
        for family, base in FAMILIES.items()
        for name, said in SAID.items()
        if ... not in said.values() or any(key in base for key in said if said[key] is ...)
        if (family, name) not in UNBUILT
    }
    llama_mlp = {
        "llama: both biases": {"model_type": "llama", **SIZES, "attention_bias": True, "mlp_bias": True}
    }
    distinct = {
        json.dumps(args["config"]): name
        for name, args in chain(DECODERS.items(), HYBRIDS.items(), TOWERS.items())
    }
    others = {
        f"{name}: {what}": config | more
        for config, name in ((json.loads(text), name) for text, name in distinct.items())
        if config["model_type"] not in ("t5", "bert", "mamba2", "rwkv")
        for what, more in (
            ("written", {}),
            ("further prediction", {"num_nextn_predict_layers": 1}),
            ("keys of others", OTHERS),
        )
    }
    defaults = {
        f"{name}: without {key}": made(config, {key: ...})
        if not section
        else config | {section: made(config[section], {key: ...})}
        for name, (section, keys) in LEFT_OUT.items()
        for key in keys
        for config in [next(c for c in map(json.loads, distinct) if c["model_type"] == name)]
    }
    towers = {
        f"{name}: {what}": made(args["config"], top) | {"text_config": args["config"]["text_config"] | text}
        for name, args in TOWERS.items()
        if name in ("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "llava", "llava_siglip")
        for what, top, text in (
            ("tied in text", {"tie_word_embeddings": ...}, {"tie_word_embeddings": True}),
            ("tied in text only", {"tie_word_embeddings": False}, {"tie_word_embeddings": True}),
            ("experts in text", {}, {"num_experts": 4}),
            ("tied at the top", {"tie_word_embeddings": True}, {"tie_word_embeddings": False}),
            ("window", {}, WINDOW | {"max_window_layers": 1}),
            ("window by default", {}, WINDOW),
        )
    }
    return plain | llama_mlp | others | defaults | towers


CASES = cases()


@pytest.fixture(scope="module")
def built() -> dict[str, dict[str, Any]]:
    environment = os.environ | {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1", warm.SOCKET: warm.address()}
    done = subprocess.run(
        fs.workers(1, "-m", "tests.oracle.built"),
        input=json.dumps(list(CASES.values())),
        capture_output=True,
        text=True,
        cwd=REPO,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


def counted(config: Config) -> tuple[int, list[bool], list[int]]:
    """Weights, layers of experts, and pairs of each layer of softmax attention."""
    shape = ModelShape.from_hf(config)
    blocks = [shape.layer_blocks(layer) for layer in range(shape.layers)]
    lefts = [
        shape.window_left(layer) for layer in range(shape.layers) if blocks[layer][0].endswith("attention")
    ]
    pairs = [sum(min(i + 1, left + 1 if left >= 0 else LENGTH) for i in range(LENGTH)) for left in lefts]
    return shape.parameters, ["mixture" in layer for layer in blocks], pairs


@pytest.mark.parametrize("name", CASES)
def test_a_config_is_counted_as_it_is_built(name: str, built: dict[str, dict[str, Any]]) -> None:
    real = built[name]
    is_index = CASES[name]["model_type"] == "deepseek_v32"  # its softmax sees the indexed keys
    for config in (CASES[name], real["written"]):
        parameters, mixtures, pairs = counted(config)
        assert (parameters, mixtures) == (real["parameters"], real["mixtures"])
        assert is_index or pairs == real["pairs"]
