"""What the modules of transformers' models are called here: which component their products count under."""

from __future__ import annotations

# model_type -> rows (pattern of a module's path, component), the first that fits; a module that has none is
# counted with the one around it.
COMPONENTS: dict[str, list[tuple[str, str]]] = {}
# model_type -> rows (name in `frozen`, pattern of the paths of its parameters; {} is the name's number).
FROZEN: dict[str, list[tuple[str, str]]] = {}

DECODER = [
    (r"self_attn\.[qkv]_proj$", "qkv_proj"),
    (r"self_attn\.o_proj$", "out_proj"),
    (r"self_attn$", "core_attention"),
    (r"mlp\.gate$", "moe_router"),
    (r"mlp\.experts$", "moe_routed_experts"),
    (r"mlp\.shared_experts?$", "moe_shared_experts"),
    (r"mlp\.shared_expert_gate$", "moe_shared_expert_gate"),
    (r"mlp$", "mlp"),
    (r"^lm_head$", "logits"),
]

COMPONENTS |= dict.fromkeys(("llama", "qwen2", "qwen3", "qwen3_moe", "mixtral"), DECODER)
COMPONENTS["gpt2"] = [
    (r"attn\.c_attn$", "qkv_proj"),
    (r"attn\.c_proj$", "out_proj"),
    (r"attn$", "core_attention"),
    (r"mlp$", "mlp"),
    (r"^lm_head$", "logits"),
]
COMPONENTS["qwen2_5_vl"] = [
    (r"visual\.patch_embed\.proj$", "vision_patch_embed"),
    (r"visual\.blocks\.\d+\.attn\.qkv$", "vision_qkv_proj"),
    (r"visual\.blocks\.\d+\.attn\.proj$", "vision_out_proj"),
    (r"visual\.blocks\.\d+\.attn$", "vision_core_attention"),
    (r"visual\.blocks\.\d+\.mlp$", "vision_mlp"),
    (r"visual\.merger\b", "vision_merger"),
    *DECODER,
]
COMPONENTS |= dict.fromkeys(
    ("qwen3_vl", "qwen3_vl_moe"),
    [(r"visual\.deepstack_merger_list\b", "vision_merger"), *COMPONENTS["qwen2_5_vl"]],
)
COMPONENTS["llava"] = [
    (r"vision_tower\..*patch_embedding$", "vision_patch_embed"),
    (r"vision_tower\..*self_attn\.[qkv]_proj$", "vision_qkv_proj"),
    (r"vision_tower\..*self_attn\.out_proj$", "vision_out_proj"),
    (r"vision_tower\..*self_attn$", "vision_core_attention"),
    (r"vision_tower\..*mlp$", "vision_mlp"),
    (r"multi_modal_projector$", "vision_projector"),
    *DECODER,
]
COMPONENTS["t5"] = [
    (r"encoder\..*SelfAttention\.[qkv]$", "encoder_qkv_proj"),
    (r"encoder\..*SelfAttention\.o$", "encoder_out_proj"),
    (r"encoder\..*SelfAttention$", "encoder_core_attention"),
    (r"encoder\..*DenseReluDense$", "encoder_mlp"),
    (r"decoder\..*SelfAttention\.[qkv]$", "qkv_proj"),
    (r"decoder\..*SelfAttention\.o$", "out_proj"),
    (r"decoder\..*SelfAttention$", "core_attention"),
    (r"EncDecAttention\.q$", "cross_q_proj"),
    (r"EncDecAttention\.[kv]$", "cross_kv_proj"),
    (r"EncDecAttention\.o$", "cross_out_proj"),
    (r"EncDecAttention$", "cross_core_attention"),
    (r"decoder\..*DenseReluDense$", "mlp"),
    (r"^lm_head$", "logits"),
]
COMPONENTS["bert"] = [
    (r"attention\.self\.(query|key|value)$", "encoder_qkv_proj"),
    (r"attention\.output\.dense$", "encoder_out_proj"),
    (r"attention\.self$", "encoder_core_attention"),
    (r"layer\.\d+\.(intermediate|output)\.dense$", "encoder_mlp"),
    (r"pooler\.dense$", "pooler"),
    (r"predictions\.transform\.dense$", "mlm_transform"),
    (r"predictions\.decoder$", "logits"),
    (r"seq_relationship$", "nsp_head"),
]

FROZEN["qwen2_5_vl"] = [
    (r"vision", r"model\.visual\.(?!merger\.)"),
    (r"projector", r"model\.visual\.merger\."),
    (r"language_model", r"model\.language_model\.|lm_head\."),
    (r"embedding", r"model\.language_model\.embed_tokens\."),
    (r"output_layer", r"lm_head\."),
    (r"layers\.\d+", r"model\.language_model\.layers\.{}\."),
]
FROZEN["qwen3_vl"] = [
    (r"vision", r"model\.visual\.(?!merger\.|deepstack_merger_list\.)"),
    (r"projector", r"model\.visual\.(merger|deepstack_merger_list)\."),
    *FROZEN["qwen2_5_vl"][2:],
]
FROZEN["qwen3_vl_moe"] = FROZEN["qwen3_vl"]
FROZEN["llava"] = [
    (r"vision", r"model\.vision_tower\."),
    (r"projector", r"model\.multi_modal_projector\."),
    *FROZEN["qwen2_5_vl"][2:],
]
FROZEN["t5"] = [
    (r"embedding", r"shared\."),
    (r"output_layer", r"lm_head\."),
    (r"encoder", r"encoder\.(block|final_layer_norm)"),
    (r"layers\.\d+", r"decoder\.block\.{}\."),
]
FROZEN["bert"] = [
    (r"embedding", r"bert\.embeddings\."),
    (r"layers\.\d+", r"bert\.encoder\.layer\.{}\."),
]
