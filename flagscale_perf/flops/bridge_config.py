"""The run_config.yaml that Megatron-Bridge writes of a training, in Megatron's argument names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.shape import LORA_TARGETS
from flagscale_perf.spine.errors import PerfError

_MODELS, _LORA = "megatron.bridge.models.", "megatron.bridge.peft.lora.LoRA"
_PARTS = ("megatron.", "torch.", "flagscale_perf.")  # whose classes a model's parts may be; ours are timers
# Of a whole configuration; beside these, a section may be a part of the model.
SECTIONS = ("model", "peft", "rerun_state_machine")
_LORA_FIELDS = (
    *("_target_", "target_modules", "exclude_modules", "dim", "alpha", "dropout", "dropout_position"),
    *("lora_A_init_method", "lora_B_init_method", "lora_dtype", "a2a_experimental", "normalize_moe_lora"),
    *("share_expert_adapters", "experts_shared_outer_loras", "sequence_parallel_input_regather"),
)
# What a model's section must say, as classes of Bridge have defaults of their own for it; then what else
# those of one module have. Bridge writes every field. Sizes of experts only where there are some.
_ALWAYS = (
    *("num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "ffn_hidden_size"),
    *("gated_linear_unit", "add_bias_linear", "normalization", "num_moe_experts", "position_embedding_type"),
    *("share_embeddings_and_output_weights", "seq_length"),
)
_MIXTURE = ("moe_ffn_hidden_size", "moe_router_topk")
_FREQUENCY, _SHARED = "moe_layer_freq", "moe_shared_expert_intermediate_size"
_LATENT = ("multi_latent_attention", "q_lora_rank", "kv_channels", "qk_layernorm")
_PROVIDERS: dict[str, tuple[str, ...]] = {
    "gpt_provider": (),
    "mla_provider": _LATENT,
    "deepseek.deepseek_provider": (*_LATENT, *_MIXTURE, _FREQUENCY, _SHARED),
    "gemma.gemma_provider": ("kv_channels",),
    "glm.glm45_provider": (
        *("kv_channels", "add_qkv_bias", "qk_layernorm", "mtp_num_layers"),
        *(*_MIXTURE, _FREQUENCY, _SHARED),
    ),
    "gpt_oss.gpt_oss_provider": ("kv_channels", *_MIXTURE, "window_size", "window_attn_skip_freq"),
    "kimi.kimi_provider": (*_LATENT, "mtp_num_layers", *_MIXTURE, _FREQUENCY, _SHARED),
    "llama.llama_provider": (*_MIXTURE, _FREQUENCY, _SHARED),
    "mistral.mistral_provider": ("kv_channels", "window_size"),
    "nemotron.nemotron_provider": ("kv_channels",),
    "olmoe.olmoe_provider": ("kv_channels", "add_qkv_bias", "qk_layernorm", *_MIXTURE),
    "qwen.qwen_provider": (
        *("kv_channels", "add_qkv_bias", "qk_layernorm"),
        *_MIXTURE,
    ),
}
# Of those, the classes that also have layers and prediction of their own by default.
_QWEN_NEXT = ("experimental_attention_variant", "attention_output_gate", "mtp_num_layers", _SHARED)


def is_bridge(content: Mapping[str, Any]) -> bool:
    """Whether a file's content is such a configuration: its model names a class of Bridge."""
    model = content.get("model")
    return isinstance(model, Mapping) and str(model.get("_target_")).startswith("megatron.bridge.")


def args_from_bridge(content: Mapping[str, Any]) -> dict[str, Any]:
    """The model's section with TransformerConfig's names, sizes of the step and adapters as arguments.

    Raises PerfError for a class, a part or an adapter that cannot be counted, and for a size that the file
    leaves to the class.
    """
    model, target = content["model"], content["model"]["_target_"]
    module, _, cls = target.removeprefix(_MODELS).rpartition(".")
    if module not in _PROVIDERS or not target.startswith(_MODELS):
        known = ", ".join(sorted(_PROVIDERS))
        raise PerfError(
            f"model: _target_ is {target!r}; of Megatron-Bridge's models those of {known} are counted; "
            "give Megatron's argument names"
        )
    _check_complete(model, module, cls)
    args = {name: str(value) if isinstance(value, Mapping) else value for name, value in model.items()}
    for name, value in model.items():
        if isinstance(value, Mapping) and not str(value.get("_target_")).startswith(_PARTS):
            raise PerfError(
                f"model: {name} is {str(dict(value))[:60]}; such a part is not known; take it out"
            )
    for name, value in (*model.items(), *content.items()):
        if value is not model and isinstance(value, Mapping) and {"num_layers", "hidden_size"} & value.keys():
            raise PerfError(
                f"{name}: describes a model beside the file's model, which is not counted; take it out"
            )
    args.setdefault("activation_func", None)
    args |= _vocabulary(Arguments(args), Arguments(_section(content, "tokenizer")))
    args["max_position_embeddings"] = args["seq_length"]
    train = _section(content, "train")
    args |= {name: train[name] for name in ("global_batch_size", "micro_batch_size") if name in train}
    del args["_target_"]
    return args | _adapters(_section(content, "peft"), Arguments(args))


def _section(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = content.get(name) or {}
    if not isinstance(section, Mapping):
        raise PerfError(f"{name}: is {section!r}; write that section as Megatron-Bridge does")
    return section


def _check_complete(model: Mapping[str, Any], module: str, cls: str) -> None:
    wanted = (*_ALWAYS, *_PROVIDERS[module], *(_QWEN_NEXT if "Next" in cls else ()))
    for name in wanted:
        if name not in model and (not name.startswith("moe_") or model.get("num_moe_experts")):
            raise PerfError(
                f"model: {name} is missing, and {cls} has a default of its own for it; add it, or give the "
                "run_config.yaml that Megatron-Bridge writes, which has every field"
            )


def _vocabulary(model: Arguments, tokenizer: Arguments) -> dict[str, Any]:
    """Bridge takes a model's vocab_size as it is, and pads a tokenizer's."""
    if model.get("vocab_size") is None:
        return {"vocab_size": tokenizer.get("vocab_size"), "should_pad_vocab": True}
    return {"should_pad_vocab": model.flag("should_pad_vocab")}


def _adapters(peft: Mapping[str, Any], model: Arguments) -> dict[str, Any]:
    if not peft:
        return {}
    if peft.get("_target_") != _LORA or peft.get("exclude_modules"):
        raise PerfError(
            f"peft: _target_ is {peft.get('_target_')!r}, exclude_modules {peft.get('exclude_modules')!r}; "
            f"only {_LORA} without exclusions is counted"
        )
    if model.get("num_moe_experts"):
        raise PerfError(
            "peft: adapters in a model with experts of Megatron-Bridge are not counted; take it out"
        )
    for name in peft:
        if name not in _LORA_FIELDS:
            raise PerfError(
                f"peft: {name} is {peft[name]!r}; no field of {_LORA} that is counted; take it out"
            )
    targets = peft.get("target_modules", LORA_TARGETS[:4])
    if not targets:
        raise PerfError(f"peft: target_modules is {targets!r}; name the layers that have adapters")
    return {"peft_type": "lora", "lora_dim": peft.get("dim", 32), "lora_target_modules": targets}
