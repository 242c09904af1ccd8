"""What is recomputed in the backward pass, from the arguments."""

from __future__ import annotations

import json
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.shape import RECOMPUTE_MODULES, Recompute
from flagscale_perf.flops.stages import layers_per_chunk
from flagscale_perf.spine.errors import PerfError

_VARYING = "recompute_{}_per_stage_micro_batch"
_UNKNOWN = Recompute(known=False)


def recompute_of(args: Arguments, layers: int) -> Recompute:
    """What is recomputed. Raises PerfError for what Megatron would refuse."""
    if any(args.get(_VARYING.format(what)) is not None for what in ("granularity", "method", "num_layers")):
        return _by_stage(args, layers)
    granularity = args.get("recompute_granularity") or (
        "selective" if args.flag("recompute_activations") else None
    )
    modules = args.names("recompute_modules") or ("core_attn",)
    if args.flag("moe_layer_recompute") and granularity != "full":
        return Recompute(modules=(*(modules if granularity else ()), "moe"))
    if granularity is None:
        return Recompute()
    if granularity == "selective":
        return Recompute(modules=modules, known=set(modules) <= set(RECOMPUTE_MODULES))
    return _full(args, layers, granularity)


def _full(args: Arguments, layers: int, granularity: Any) -> Recompute:
    if granularity != "full":
        raise PerfError(f"model: recompute_granularity is {granularity!r}; write full or selective")
    method = args.get("recompute_method")
    if method == "uniform":
        return _uniform(args, layers)
    if method == "block":
        return _block(args, layers)
    raise PerfError(
        f"model: recompute_method is {method!r} with recompute_granularity full; write uniform or block"
    )


def _uniform(args: Arguments, layers: int) -> Recompute:
    # recompute_num_layers of a stage, or of a virtual stage, at a time
    count = args.optional("recompute_num_layers") or 1
    chunks = [layers] if count == 1 else layers_per_chunk(args, layers)
    if chunks is None:
        return _UNKNOWN if args.names("frozen") else Recompute((True,) * layers, full_mtp=True)
    parts = [part for held in chunks for part in _parts(held, count)]
    return Recompute((True,) * layers, together=_but_for_ones(parts), full_mtp=True)


def _parts(layers: int, count: int) -> list[int]:
    return [min(count, layers - begin) for begin in range(0, layers, count)]


def _but_for_ones(parts: list[int]) -> tuple[int, ...]:
    return () if max(parts, default=1) == 1 else tuple(parts)


def _block(args: Arguments, layers: int) -> Recompute:
    # The first recompute_num_layers layers of every stage, or of every virtual stage; never the layers of
    # multi-token prediction.
    chunks = layers_per_chunk(args, layers)
    if chunks is None:
        return _UNKNOWN
    wanted = args.integer("recompute_num_layers")
    return Recompute(full_layers=tuple(layer < wanted for chunk in chunks for layer in range(chunk)))


def _by_stage(args: Arguments, layers: int) -> Recompute:
    """FlagScale's settings for each stage, if they are the same for all micro-batches of a stage.

    Within a stage they cannot be told apart: FlagScale writes them into the model's configuration as it goes,
    so that the first micro-batch without recomputation switches it off for all later ones, too.
    """
    chunks = layers_per_chunk(args, layers)
    stages = args.integer("pipeline_model_parallel_size", 1)
    if chunks is None or len(chunks) != stages or args.get("recompute_granularity") != "full":
        return _UNKNOWN
    usual = {
        "granularity": 1,
        "method": {"uniform": 0, "block": 1}.get(str(args.get("recompute_method"))),
        "num_layers": args.optional("recompute_num_layers"),
    }
    flags = {
        what: _of_stages(args.get(_VARYING.format(what)), stages, value) for what, value in usual.items()
    }
    repeated: list[bool] = []
    parts: list[int] = []
    is_mtp = False
    for stage, held in enumerate(chunks):
        granularity, method, wanted = (flags[what][stage] for what in usual)
        if granularity is None or (granularity and (method is None or (method and wanted is None))):
            return _UNKNOWN
        is_on = bool(granularity) and wanted != 0
        repeated += [is_on and (not method or layer < (wanted or 0)) for layer in range(held)]
        parts += _parts(held, wanted or 1) if is_on and not method else [1] * held
        is_mtp = is_on and not method
    return Recompute(tuple(repeated), _but_for_ones(parts), is_mtp)


def _of_stages(given: Any, stages: int, usual: int | None) -> list[int | None]:
    """One value for each stage; None where it is not known or differs among the stage's micro-batches.

    A text or yaml list `[n, m, v, ...]` stands for n stages with v in m micro-batches; that is the form of
    the command line. In a running FlagScale there is a list of each stage's micro-batches instead.
    """
    if given is None:
        return [usual] * stages
    try:
        rows = [json.loads(row) if isinstance(row, str) else list(row) for row in given]
        is_packed = any(isinstance(row, str) for row in given) or len(rows) != stages
        values = _unpacked(rows) if is_packed else [set(map(int, row)) for row in rows]
    except (TypeError, ValueError, IndexError):
        return [None] * stages
    if len(values) != stages:
        return [None] * stages
    return [next(iter(each)) if len(each) == 1 else None for each in values]


def _unpacked(rows: list[list[int]]) -> list[set[int]]:
    return [set(map(int, row[2::2])) for row in rows for _ in range(min(int(row[0]), 1000))]
