"""The models of transformers that every run of the tests counts: each kind of block, of recomputation and of
what is frozen once. `make oracle` counts all others, Megatron's, and random ones.
"""

from __future__ import annotations

from tests.oracle.configurations import Args
from tests.oracle.hybrid_configurations import HYBRIDS
from tests.oracle.tower_configurations import DECODERS, TOWERS


def _chosen(configurations: dict[str, Args], names: str) -> dict[str, Args]:
    return {name: configurations[name] for name in names.split()}


TRANSFORMERS: dict[str, Args] = (
    DECODERS
    | _chosen(
        TOWERS,
        "qwen2_5_vl qwen2_5_vl_ragged_windows qwen2_5_vl_frozen_vision_projector_recompute "
        "qwen3_vl_recompute qwen3_vl_frozen_embedding_layers.0 qwen3_vl_moe llava "
        "llava_frozen_language_model_recompute llava_siglip llava_two_layers t5_recompute "
        "t5_frozen_encoder_recompute bert_frozen",
    )
    | _chosen(
        HYBRIDS,
        "mamba2 mamba2_chunked nemotron_h_recompute nemotron_h_recompute_chunked nemotron_h_latent bamba "
        "granite qwen3_next_recompute qwen3_next_chunked qwen3_5_moe qwen3_5_frozen "
        "kimi_linear_recompute kimi_linear_chunked deepseek_v32 rwkv",
    )
)
