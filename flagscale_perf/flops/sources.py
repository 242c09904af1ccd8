"""Reads the fields of a `Shape` from Megatron's or FlagScale's arguments.

Files of such arguments are translated in `files.py`, a Hugging Face config.json in `hf.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.core_names import megatron_names
from flagscale_perf.flops.hybrid import Layers, Pattern, mtp_depths, named_blocks, pattern_of, variant_blocks
from flagscale_perf.flops.hybrid_sizes import engram_of, sizes_of, streams_of
from flagscale_perf.flops.multimodal import decoder_layers, tower_fields
from flagscale_perf.flops.patterns import flags_of_layers
from flagscale_perf.flops.recomputation import recompute_of
from flagscale_perf.flops.shape import LORA_TARGETS, Experts, LatentAttention, Lora, Window
from flagscale_perf.flops.sizes import Engram
from flagscale_perf.spine.errors import PerfError

# Options of hosts that change what is multiplied and are not counted -> what they bring; a model with one is
# refused. A test asks of every option of every host whether it is counted, changes nothing, or stands here.
UNCOUNTED = {
    "biencoder_projection_dim": "two encoders side by side",
    "checkpoint_activations": "recomputation by a rule of long ago (write recompute_granularity)",
    "enable_mhc_connections": "residual streams (mHC) of a spec of one's own",
    "export_kd_teacher_load": "a teacher beside the model",
    "export_offline_model": "a model without its layers",
    "freeze_all_layers": "a step without a backward pass",
    "freeze_base_for_mtp": "a prediction that is trained alone",
    "heterogeneous_layers_config_encoded_json": "layers of different shapes",
    "heterogeneous_layers_config_path": "layers of different shapes",
    "ict_head_size": "two encoders side by side",
    "indexer_type_rule": "an index shared by layers of a list (releases of Megatron-LM-FL build others)",
    "indexer_types": "an index shared by layers of a list (releases of Megatron-LM-FL build others)",
    "perform_rl_step": "a step that generates and scores, too",
    "qad_train_target": "a model of which only some is trained",
    "retro_add_retriever": "an encoder of retrieved neighbours",
    "standalone_embedding_stage": "a stage without layers",
    "use_legacy_models": "models older than Megatron-Core's",
    "vision_pretraining": "a vision model alone",
}
NOTHING = ("", "0", "0.0", "false", "no", "none", "null", "off", "[]", "()")


def fields_from_args(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `Shape` by name. Raises PerfError, naming what is missing or contradictory."""
    args = Arguments(megatron_names(given))
    refuse_uncounted(args)
    pattern = pattern_of(args)
    layers = len(pattern.layers) if pattern else decoder_layers(args)
    hidden, heads = args.integer("hidden_size"), args.integer("num_attention_heads")
    latent, mtp_layers = _latent_attention(args), mtp_depths(args)
    swiglu, geglu = args.flag("swiglu"), args.flag("quick_geglu")
    if swiglu + geglu + args.flag("squared_relu") > 1:
        raise PerfError(
            "model: only one of swiglu, quick_geglu and squared_relu can be the activation; set one"
        )
    ffn = _ffn(args, hidden, swiglu)
    experts = _experts(args, layers, ffn)
    blocks = _blocks(args, pattern, experts, latent is not None, layers)
    if pattern and experts:
        experts = replace(experts, layers=tuple("mixture" in layer for layer in blocks["blocks"]))
    return {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_groups": _query_groups(args, heads, latent),
        "head_dim": _head_dim(args, hidden, heads, latent),
        "ffn": ffn,
        "gated": swiglu or geglu,
        "vocab": _vocabulary(args),
        "declared_family": _declared_family(args),
        "latent": latent,
        "experts": experts,
        "mtp_layers": mtp_layers,
        "mtp_shared": args.flag("mtp_use_repeated_layer"),
        "mtp_detached": args.flag("mtp_detach_heads"),
        "output_gate": args.flag("attention_output_gate"),
        "sinks": args.get("softmax_type") == "learnable",
        "head_gate": args.flag("head_wise_attn_gate"),
        "window": _window(args, layers + mtp_layers),
        "recompute": recompute_of(args, layers),
        "lora": _lora(args),
        "micro_batch": args.optional("micro_batch_size"),
        "sequence_shards": _sequence_shards(args),
        "streams": streams_of(args),
        **_parameter_facts(args),
        **tower_fields(args, layers),
        **blocks,
    }


def _blocks(
    args: Arguments, pattern: Pattern | None, experts: Experts | None, is_latent: bool, layers: int
) -> dict[str, Any]:
    """The blocks of the layers and their sizes; empty if each is attention and a feed-forward block."""
    memories = engram_of(args)
    if pattern is not None:
        blocks, mtp = _of_pattern(args, pattern, memories)
    else:
        attention = "latent_attention" if is_latent else "attention"
        is_moe = experts.layers if experts else (False,) * layers
        usual = tuple((attention, "mixture" if routed else "mlp") for routed in is_moe)
        blocks, mtp = _of_layers(args, usual, memories)
    if not blocks:
        return {}
    names = {name for layer in (*blocks, mtp) for name in layer}
    _check_sized(names, experts is not None, is_latent)
    return {"blocks": blocks, "mtp_blocks": mtp, "engram": memories, **sizes_of(args, names)}


def _check_sized(names: set[str], has_experts: bool, is_latent: bool) -> None:
    """Raises PerfError for blocks whose sizes the arguments do not give."""
    if "mixture" in names and not has_experts:
        raise PerfError("model: there are layers of experts (E), but num_experts is missing; give it")
    if names & {"latent_attention", "sparse_attention"} and not is_latent:
        raise PerfError(
            "model: there are layers of latent attention (+ or D), but multi_latent_attention is not set; "
            "set it, and give kv_lora_rank and the head widths"
        )


def _of_pattern(args: Arguments, pattern: Pattern, memories: Engram | None) -> Pattern:
    if memories:
        raise PerfError("model: use_engram in a hybrid model cannot be counted; drop one of them")
    if mtp_depths(args) and not pattern.mtp:
        raise PerfError(
            "model: mtp_num_layers is given, but not what a depth is made of; write its layers behind "
            "'/' in hybrid_layer_pattern, or mtp_hybrid_override_pattern"
        )
    return pattern


def _of_layers(args: Arguments, usual: Layers, memories: Engram | None) -> Pattern:
    """The layers with their n-gram memories, which a depth of multi-token prediction never has; none if all
    of them are the usual ones.
    """
    given = named_blocks(args, len(usual)) or variant_blocks(args, usual)
    if not memories:
        return Pattern(given, ())
    plain = given or usual
    layers = tuple(
        ("engram", *each) if layer in memories.layers else each for layer, each in enumerate(plain)
    )
    return Pattern(layers, plain[-1] if mtp_depths(args) else ())


def _parameter_facts(args: Arguments) -> dict[str, Any]:
    linear_bias = args.get("add_bias_linear")
    positions = ("learned_absolute", "rope", "mrope", "yarn", "relative", "none")
    learned = (
        args.choice("position_embedding_type", *positions) == "learned_absolute"
        and args.get("add_position_embedding") is not False
    )
    return {
        "norm_bias": args.choice("normalization", "LayerNorm", "RMSNorm") == "LayerNorm",
        "linear_bias": True if linear_bias is None else args.flag("add_bias_linear"),
        "qkv_bias": args.flag("add_qkv_bias"),
        "out_bias": args.flag("add_out_bias"),
        "qk_norm": args.flag("qk_layernorm"),
        "tied_embeddings": not args.flag("untie_embeddings_and_output_weights"),
        "learned_positions": _count(args, "max_position_embeddings") if learned else 0,
    }


def _count(args: Arguments, name: str) -> int:
    return 0 if args.get(name) in (None, 0, "0") else args.integer(name)


def _declared_family(args: Arguments) -> str:
    if args.get("model_family"):
        return str(args.get("model_family"))
    is_aquila = (
        args.get("hidden_dim_multiplier") is not None or "aquila" in str(args.get("tokenizer_type")).lower()
    )
    return "aquila" if is_aquila else ""


def _latent_attention(args: Arguments) -> LatentAttention | None:
    if not args.flag("multi_latent_attention"):
        return None
    if args.flag("group_query_attention"):
        raise PerfError(
            "model: multi_latent_attention and group_query_attention exclude each other; set one of them"
        )
    names = ("kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")
    return LatentAttention(args.optional("q_lora_rank"), *(args.integer(name) for name in names))


def _query_groups(args: Arguments, heads: int, latent: LatentAttention | None) -> int:
    # Megatron ignores num_query_groups unless group_query_attention is set.
    is_grouped = args.flag("group_query_attention") and latent is None
    return args.integer("num_query_groups") if is_grouped else heads


def _head_dim(args: Arguments, hidden: int, heads: int, latent: LatentAttention | None) -> int:
    if args.get("kv_channels") is not None:
        return args.integer("kv_channels")
    if latent is None and hidden % heads:
        raise PerfError(
            f"model: hidden_size {hidden} is not a multiple of num_attention_heads {heads}; give kv_channels"
        )
    return max(1, hidden // heads)


def _ffn(args: Arguments, hidden: int, swiglu: bool) -> int:
    """Inner width; if not given, by the rule of Megatron's and FlagScale's `validate_args`."""
    if args.get("ffn_hidden_size") is not None:
        return args.integer("ffn_hidden_size")
    if not swiglu:
        return 4 * hidden
    width = int(4 * hidden * 2 / 3)
    multiple = args.optional("multiple_of")
    if multiple is None:
        return width // 64 * 64
    if args.get("hidden_dim_multiplier") is not None:
        width = int(width * args.factor("hidden_dim_multiplier"))
    return _round_up(width, multiple)


def _vocabulary(args: Arguments) -> int:
    """Rows of the output layer: padded_vocab_size, or vocab_size padded as Megatron pads it."""
    if args.get("padded_vocab_size") is not None:
        padded, least = args.integer("padded_vocab_size"), args.get("vocab_size")
        if isinstance(least, int) and padded < least:
            raise PerfError(
                f"model: padded_vocab_size is {padded}, less than vocab_size {least}; give one of them"
            )
        return padded
    if args.get("vocab_size") is None:
        raise PerfError(
            "model: padded_vocab_size and vocab_size are missing; add one of them to the arguments"
        )
    unpadded = any(args.has(name) and not args.flag(name) for name in ("pad_vocab_size", "should_pad_vocab"))
    if unpadded or args.has("vision_num_layers"):  # FlagScale's Qwen3.5 pads nothing
        return args.integer("vocab_size")
    per_rank = args.integer("make_vocab_size_divisible_by", 128)
    ranks = args.integer("tensor_model_parallel_size", 1)
    adds_a_token = args.get("tokenizer_type") == "NullTokenizer"  # for the end of a document
    return _round_up(args.integer("vocab_size") + adds_a_token, per_rank * ranks)


def _round_up(number: int, multiple: int) -> int:
    return (number + multiple - 1) // multiple * multiple


def _experts(args: Arguments, layers: int, ffn: int) -> Experts | None:
    if not args.get("num_experts"):
        return None
    capacity = args.get("moe_expert_capacity_factor")
    has_capacity = capacity is not None and not str(capacity).startswith("-")
    is_padded = has_capacity and args.flag("moe_pad_expert_input_to_capacity")
    return Experts(
        count=args.integer("num_experts"),
        topk=args.integer("moe_router_topk", 2),
        ffn_hidden_size=args.integer("moe_ffn_hidden_size", ffn),
        layers=_moe_layers(args.get("moe_layer_freq"), layers),
        shared_ffn_hidden_size=_count(args, "moe_shared_expert_intermediate_size"),
        shared_gate=args.flag("moe_shared_expert_gate"),
        latent_size=args.optional("moe_latent_size"),
        capacity_factor=args.factor("moe_expert_capacity_factor") if is_padded else None,
        drops=has_capacity and not is_padded,
    )


def _moe_layers(frequency: Any, layers: int) -> tuple[bool, ...]:
    """moe_layer_freq as Megatron reads it: N for every N-th layer from the first, or a list of 0 and 1."""
    if frequency is None:
        return (True,) * layers
    return flags_of_layers("moe_layer_freq", frequency, layers, lambda layer, every: layer % every == 0)


def _window(args: Arguments, layers: int) -> Window | None:
    size = args.get("window_size")
    if size is None:
        return None
    numbers = [int(one) for one in re.findall(r"-?\d{1,12}", str(size))]
    if len(numbers) != 2 or numbers[0] < -1:
        raise PerfError(f"model: window_size is {size!r}; write two whole numbers, for example 4096,0")
    skip = args.get("window_attn_skip_freq")
    if isinstance(skip, Sequence) and not isinstance(skip, str) and skip:
        if len(skip) < args.layers():
            raise PerfError(
                f"model: window_attn_skip_freq is {skip!r}, and num_layers {args.layers()}; "
                "write one number for each layer"
            )
        return Window(numbers[0], tuple(bool(skip[min(layer, len(skip) - 1)]) for layer in range(layers)))
    every = args.optional("window_attn_skip_freq")
    return Window(numbers[0], tuple(every is None or (layer + 1) % every != 0 for layer in range(layers)))


def _lora(args: Arguments) -> Lora | None:
    kind = args.get("peft_type")
    if kind is None:
        return None
    if kind != "lora":
        raise PerfError(f"model: peft_type is {kind!r}; only lora is counted")
    targets = args.names("lora_target_modules") or LORA_TARGETS[:4]
    for target in targets:
        if target not in LORA_TARGETS:
            raise PerfError(
                f"model: lora_target_modules has {target!r}; write some of {', '.join(LORA_TARGETS)}"
            )
    return Lora(args.integer("lora_dim", 8), targets)


def _sequence_shards(args: Arguments) -> int:
    shards = args.integer("context_parallel_size", 1)
    return shards * (args.integer("tensor_model_parallel_size", 1) if args.flag("sequence_parallel") else 1)


def refuse_uncounted(args: Arguments) -> None:
    """Raises PerfError for the first of these options that is used."""
    for name, what in UNCOUNTED.items():
        value = args.get(name)
        if value and str(value).strip().lower() not in NOTHING:
            raise PerfError(f"model: {name} is {value!r}; {what} cannot be counted")
    if "rwkv" in str(args.get("tokenizer_type")).lower():
        raise PerfError(
            f"model: tokenizer_type is {args.get('tokenizer_type')!r}; RWKV's time mixing cannot be counted"
        )
