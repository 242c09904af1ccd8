"""Sizes of Mamba, delta-rule, index and RWKV blocks from the arguments."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.hybrid import mtp_depths
from flagscale_perf.flops.patterns import numbers_of_layers
from flagscale_perf.flops.sizes import (
    OVERLAPPING,
    CompressedAttention,
    DeltaNet,
    Indexer,
    KimiDelta,
    Mamba,
    Rwkv,
)
from flagscale_perf.spine.errors import PerfError

RATIOS = (0, OVERLAPPING, 128)  # of compressed keys, which DeepSeek-V4 knows


def sizes_of(args: Arguments, blocks: Set[str]) -> dict[str, Any]:
    """The fields of `Shape` with the sizes that these blocks need. Raises PerfError."""
    fields: dict[str, Any] = {}
    if blocks & {"mamba", "gdp"}:
        fields["mamba"] = _mamba(args, args.integer("gdp_num_householder", 3) if "gdp" in blocks else 0)
    if "gdn" in blocks:
        fields["delta"] = _delta(args)
    if "kda" in blocks:
        conv = args.integer("linear_conv_kernel_dim", 4)
        fields["kda"] = KimiDelta(args.integer("linear_num_heads"), args.integer("linear_head_dim"), conv)
    if "sparse_attention" in blocks:
        fields["indexer"] = _indexer(args)
    if "compressed_attention" in blocks:
        fields["compressed"] = _compressed(args)
    if blocks & {"rwkv_time_mix", "rwkv_channel_mix"}:
        hidden = args.integer("hidden_size")
        width = args.integer("attention_hidden_size", hidden)
        fields["rwkv"] = Rwkv(width, args.integer("ffn_hidden_size", 4 * hidden))
    return fields


def streams_of(args: Arguments) -> int:
    """Residual streams of FlagScale's hyper-connections; 0 for one. Raises PerfError for what is not counted
    beside them.
    """
    if not args.flag("enable_hyper_connections"):
        return 0
    for other in ("mtp_num_layers", "hybrid_layer_pattern", "hybrid_override_pattern", "spec"):
        if args.get(other) not in (None, 0, "0"):
            raise PerfError(
                f"model: enable_hyper_connections is set and {other} is {args.get(other)!r}; both together "
                "cannot be counted"
            )
    return args.integer("num_residual_streams", 4)


def _mamba(args: Arguments, householders: int) -> Mamba:
    hidden, head_dim = args.integer("hidden_size"), args.integer("mamba_head_dim", 64)
    heads = args.optional("mamba_num_heads")
    if heads is None:
        if 2 * hidden % head_dim:
            raise PerfError(
                f"model: mamba_num_heads is not given, and twice the hidden_size {hidden} is not a multiple "
                f"of mamba_head_dim {head_dim}; give mamba_num_heads"
            )
        heads = 2 * hidden // head_dim
    groups = args.integer("mamba_num_groups", 8)
    if heads % groups:
        raise PerfError(
            f"model: mamba_num_groups {groups} does not divide mamba_num_heads {heads}; give a divisor"
        )
    conv_bias = args.get("mamba_conv_bias")
    return Mamba(
        heads,
        head_dim,
        args.integer("mamba_state_dim", 128),
        groups,
        conv=args.integer("mamba_conv_kernel", 4),
        chunk=args.integer("mamba_chunk_size", 128),
        in_bias=args.flag("mamba_in_bias"),
        out_bias=args.flag("mamba_out_bias"),
        conv_bias=True if conv_bias is None else args.flag("mamba_conv_bias"),
        householders=householders,
    )


def _delta(args: Arguments) -> DeltaNet:
    keys, values = args.integer("linear_num_key_heads"), args.integer("linear_num_value_heads")
    if values % keys:
        raise PerfError(
            f"model: linear_num_key_heads {keys} does not divide linear_num_value_heads {values}; "
            "give a divisor"
        )
    return DeltaNet(
        keys,
        values,
        args.integer("linear_key_head_dim"),
        args.integer("linear_value_head_dim"),
        conv=args.integer("linear_conv_kernel_dim", 4),
        second=args.get("experimental_attention_variant") == "gdn2",
    )


def _indexer(args: Arguments) -> Indexer:
    coefficient, every = args.get("dsa_indexer_loss_coeff"), args.integer("dsa_indexer_topk_freq", 1)
    if every > 1 and mtp_depths(args):
        raise PerfError(
            f"model: dsa_indexer_topk_freq is {every} and there is multi-token prediction, whose layers may "
            "share an index or not; they cannot be counted"
        )
    return Indexer(
        args.integer("dsa_indexer_n_heads"),
        args.integer("dsa_indexer_head_dim"),
        args.integer("dsa_indexer_topk"),
        trained=coefficient not in (None, 0, 0.0, "0", "0.0"),
        every=every,
        first=max(1, args.integer("dsa_indexer_skip_topk_offset", 0, least=0)),
    )


def _compressed(args: Arguments) -> CompressedAttention:
    name, wanted = "csa_compress_ratios", args.layers() + mtp_depths(args)
    ratios = numbers_of_layers(name, args.get(name), wanted, RATIOS)
    indexer = None
    if OVERLAPPING in ratios and not args.flag("csa_dense_mode"):
        indexer = _indexer(args)
    return CompressedAttention(
        ratios,
        args.integer("csa_window_size", 128),
        args.integer("o_groups", 8),
        args.integer("o_lora_rank", 1024),
        indexer,
    )
