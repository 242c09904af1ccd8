#!/usr/bin/env bash
# transformers 5.23.0: `tie_word_embeddings: true` in a config.json does nothing for Nemotron-H and Kimi Linear: the output layer keeps weights
# of its own. `attention_bias: true` does nothing for Nemotron-H. The same configuration of Llama is tied, and has the biases.
#
# Guess before the run: a key that a configuration class declares changes the model, or is refused.
# Seen (transformers 5.23.0, torch 2.13.0, Python 3.11, models on the meta device, hidden 64, vocabulary 256), weights against those without:
#   llama        tied -16,384 (256 x 64)    attention_bias +384
#   nemotron_h   tied 0                     attention_bias 0
#   kimi_linear  tied 0                     attention_bias +84
# Who sizes such a model by its configuration is short by an embedding: for Nemotron-H 8B (131,072 x 4,096) half a billion weights.
#
# Installs transformers and torch into a temporary directory. Exit status 0: as stated here; 1: it has changed.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.23.0 torch==2.13.0+cpu ||
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.23.0 torch==2.13.0
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import sys
import warnings

warnings.filterwarnings("ignore")
import torch
import transformers

transformers.logging.set_verbosity_error()
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 256, "pad_token_id": 0}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1}
LATENT = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "num_key_value_heads": 4}
LINEAR = {"linear_num_heads": 4, "linear_head_dim": 16, "layer_types": ["linear_attention", "full_attention"]}
MAMBA = {"mamba_num_heads": 4, "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 2, "head_dim": 16}
MODELS = {
    "llama": SIZES | {"num_hidden_layers": 2},
    "nemotron_h": SIZES | MAMBA | {"layers_block_type": ["mamba", "attention", "mlp"]},
    "kimi_linear": SIZES | EXPERTS | LATENT | LINEAR | {"num_hidden_layers": 2},
}


def weights(model: str, **said: bool) -> int:
    config = transformers.AutoConfig.for_model(model, **MODELS[model], **said)
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(config)
    return sum(each.numel() for each in built.parameters())  # shared ones once


seen = {}
for model in MODELS:
    plain = weights(model, tie_word_embeddings=False, attention_bias=False)
    tied = weights(model, tie_word_embeddings=True, attention_bias=False)
    seen[model] = (tied - plain, weights(model, tie_word_embeddings=False, attention_bias=True) - plain)
    print(f"{model}: {plain} weights; tied {seen[model][0]:+}, attention_bias {seen[model][1]:+}")
sys.exit(seen != {"llama": (-16384, 384), "nemotron_h": (0, 0), "kimi_linear": (0, 84)})
PYTHON
