"""Sizes of Mamba, delta-rule, index, RWKV and n-gram blocks from the arguments."""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.hybrid import mtp_depths
from flagscale_perf.flops.patterns import numbers_of_layers
from flagscale_perf.flops.sizes import (
    OVERLAPPING,
    CompressedAttention,
    DeltaNet,
    Engram,
    Indexer,
    KimiDelta,
    Mamba,
    Rwkv,
)
from flagscale_perf.spine.errors import PerfError

# Tables of n-grams have primes for numbers of rows; to find one takes the square root of it, for each table.
_MAX_ROWS, _MAX_TABLES = 10**8, 4096
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
    """Residual streams of hyper-connections; 0 for one. Raises PerfError for options it cannot combine."""
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
        absorbed=None if args.get("dsa_absorbed") is None else args.flag("dsa_absorbed"),
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


def engram_of(args: Arguments) -> Engram | None:
    """FlagScale's n-gram memories; None if there are none. Raises PerfError."""
    if not args.flag("use_engram"):
        return None
    if args.flag("enable_hyper_connections"):
        raise PerfError(
            "model: use_engram and enable_hyper_connections are both set, and not counted together"
        )
    layers, n = _numbers(args, "engram_layer_ids", 0), args.integer("max_ngram_size")
    rows, heads = _numbers(args, "engram_vocab_size", 1), args.integer("n_head_per_ngram", 1)
    if len(rows) != n - 1:
        raise PerfError(
            f"model: engram_vocab_size has {len(rows)} numbers, max_ngram_size is {n}; give one for each of "
            f"the n-grams from 2 to {n}"
        )
    if any(layer >= args.layers() for layer in layers) or len(set(layers)) < len(layers):
        raise PerfError(
            f"model: engram_layer_ids is {args.get('engram_layer_ids')!r}, num_layers is {args.layers()}; "
            "give layers from 0 on, each once"
        )
    width = args.integer("n_embed_per_ngram")
    if width % heads or heads * len(rows) * len(layers) > _MAX_TABLES:
        raise PerfError(
            f"model: n_head_per_ngram is {heads}; give a divisor of n_embed_per_ngram {width}, and at most "
            f"{_MAX_TABLES} tables"
        )
    by_tensor = args.get("engram_embedding_parallel_method") == "allreduce"
    ranks = args.integer("tensor_model_parallel_size" if by_tensor else "engram_embedding_parallel_size", 1)
    taken: set[int] = set()
    tables = tuple(
        math.ceil(sum(_primes(rows, heads, taken)) / ranks) * ranks * (width // heads) for _ in layers
    )
    return Engram(layers, (n - 1) * width, args.integer("engram_kernel_size", 1), tables)


def _numbers(args: Arguments, name: str, least: int) -> tuple[int, ...]:
    given: Any = args.get(name)
    if isinstance(given, list | tuple) and all(
        type(one) is int and least <= one <= _MAX_ROWS for one in given
    ):
        return tuple(given)
    raise PerfError(f"model: {name} is {given!r}; write a list of whole numbers, as use_engram is set")


def _primes(rows: tuple[int, ...], heads: int, taken: set[int]) -> list[int]:
    """Rows of a layer's tables, as `NgramHashMapping` takes them: for each head the next prime not taken."""
    found: list[int] = []
    for wanted in rows:
        number = wanted - 1
        for _ in range(heads):
            number += 1
            while number in taken or not _is_prime(number):
                number += 1
            taken.add(number)
            found.append(number)
    return found


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))
