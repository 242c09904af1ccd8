"""Reads from the arguments what the backward pass recomputes and how pipeline stages divide the layers."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.shape import RECOMPUTE_MODULES, Recompute
from flagscale_perf.spine.errors import PerfError

_VARYING = "recompute_{}_per_stage_micro_batch"
_UNKNOWN = Recompute(known=False)


def recompute_of(args: Arguments, layers: int) -> Recompute:
    """The recomputation that the arguments ask for. Raises PerfError for what Megatron would refuse."""
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
    return _joined([_stage(held, *(flags[what][i] for what in usual)) for i, held in enumerate(chunks)])


class _Stage(NamedTuple):
    """A pipeline stage: the layers it recomputes, how many together, and whether it does those of MTP."""

    layers: tuple[bool, ...]
    parts: list[int]
    mtp: bool


def _joined(stages: list[_Stage | None]) -> Recompute:
    known = [each for each in stages if each is not None]
    if len(known) < len(stages):
        return _UNKNOWN
    parts = [part for each in known for part in each.parts]
    return Recompute(sum((each.layers for each in known), ()), _but_for_ones(parts), known[-1].mtp)


def _stage(held: int, granularity: int | None, method: int | None, wanted: int | None) -> _Stage | None:
    """A stage of `held` layers with these settings; None if they do not tell."""
    if granularity is None or (granularity and (method is None or (method and wanted is None))):
        return None
    if not granularity or wanted == 0:
        return _Stage((False,) * held, [1] * held, False)
    if method:
        return _Stage(tuple(layer < (wanted or 0) for layer in range(held)), [1] * held, False)
    return _Stage((True,) * held, _parts(held, wanted or 1), True)


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


def layers_per_chunk(args: Arguments, layers: int) -> list[int] | None:
    """Layers of each chunk, in the model's order, as Megatron's `get_num_layers_to_build` has them; None for
    a layout that is not divided evenly by rule.

    A chunk is what one pipeline stage, or one of its virtual stages, holds in a row. Raises PerfError.
    """
    if any(args.get(name) for name in ("pipeline_model_parallel_layout", "enable_hetero", "use_dualpipev")):
        return None
    embedding = args.flag("account_for_embedding_in_pipeline_split")
    loss = args.flag("account_for_loss_in_pipeline_split")
    per_stage = _layers_per_stage(args, layers + embedding + loss)
    virtual = _virtual_stages(args, per_stage)
    if any(held % virtual for held in per_stage):
        raise PerfError(
            f"model: pipeline stages of {per_stage} layers are not divisible into {virtual} virtual stages "
            "each; change one"
        )
    chunks = [held // virtual for _ in range(virtual) for held in per_stage]
    chunks[0] -= embedding
    chunks[-1] -= loss
    return chunks


def _layers_per_stage(args: Arguments, layers: int) -> list[int]:
    stages = args.integer("pipeline_model_parallel_size", 1)
    first = args.optional("decoder_first_pipeline_num_layers")
    last = args.optional("decoder_last_pipeline_num_layers")
    ends = (first or 0) + (last or 0)
    others = stages - (first is not None) - (last is not None)
    if others < 0 or (layers - ends) % max(others, 1) or (others == 0 and layers != ends):
        raise PerfError(
            f"model: {layers} layers cannot be divided over {stages} pipeline stages (first {first}, "
            f"last {last}); change pipeline_model_parallel_size, decoder_first_pipeline_num_layers "
            "or decoder_last_pipeline_num_layers"
        )
    middle = [(layers - ends) // others] * others if others else []
    return [*([] if first is None else [first]), *middle, *([] if last is None else [last])]


def _virtual_stages(args: Arguments, per_stage: list[int]) -> int:
    for name in ("virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"):
        if args.get(name) is not None:
            return args.integer(name)
    if args.get("num_layers_per_virtual_pipeline_stage") is not None:
        return max(1, per_stage[0] // args.integer("num_layers_per_virtual_pipeline_stage"))
    return 1
