"""FlagScale's n-gram memories from its arguments; their tables have primes for numbers of rows."""

from __future__ import annotations

import math
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.sizes import Engram
from flagscale_perf.spine.errors import PerfError

# Finding a prime takes the square root of it, once for each table.
_MAX_ROWS, _MAX_TABLES = 10**8, 4096


def engram_of(args: Arguments) -> Engram | None:
    """The memories; None if there are none. Raises PerfError."""
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
    """Rows of one layer's tables: for each n-gram and head the next prime that no table has, as
    `NgramHashMapping` takes them.
    """
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
