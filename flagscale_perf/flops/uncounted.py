"""Options of hosts that change what is multiplied and that nothing here counts: a model with one is refused.

A host's option is counted, has no influence on FLOPs, or stands here; which of the three, a test asks of
every option of every host.
"""

from __future__ import annotations

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.spine.errors import PerfError

# Option -> what it brings. Left at None, 0 or off it brings nothing.
UNCOUNTED = {
    "biencoder_projection_dim": "two encoders side by side",
    "enable_mhc_connections": "residual streams (mHC) of a spec of one's own",
    "export_kd_teacher_load": "a teacher beside the model",
    "export_offline_model": "a model without its layers",
    "freeze_all_layers": "a step without a backward pass",
    "freeze_base_for_mtp": "a prediction that is trained alone",
    "heterogeneous_layers_config_encoded_json": "layers of different shapes",
    "heterogeneous_layers_config_path": "layers of different shapes",
    "ict_head_size": "two encoders side by side",
    "perform_rl_step": "a step that generates and scores, too",
    "qad_train_target": "a model of which only some is trained",
    "retro_add_retriever": "an encoder of retrieved neighbours",
    "standalone_embedding_stage": "a stage without layers",
    "use_legacy_models": "models older than Megatron-Core's",
    "vision_pretraining": "a vision model alone",
}
_NOTHING = ("", "0", "0.0", "false", "no", "none", "null", "off", "[]", "()")


def refuse_uncounted(args: Arguments) -> None:
    """Raises PerfError for the first of these options that is used."""
    for name, what in UNCOUNTED.items():
        value = args.get(name)
        if value and str(value).strip().lower() not in _NOTHING:
            raise PerfError(f"model: {name} is {value!r}; {what} cannot be counted")
    if "rwkv" in str(args.get("tokenizer_type")).lower():
        raise PerfError(
            f"model: tokenizer_type is {args.get('tokenizer_type')!r}; RWKV's time mixing cannot be counted"
        )
