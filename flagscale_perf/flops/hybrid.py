"""Which blocks the layers of a model are made of, where the arguments say so."""

from __future__ import annotations

from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.families import BLOCKS
from flagscale_perf.spine.errors import PerfError


def fields(args: Arguments, layers: int) -> dict[str, Any]:
    """The fields of `Shape` that say so; none where each layer is attention and a feed-forward block.

    Raises PerfError.
    """
    named = _named_blocks(args, layers)
    return {"blocks": named} if named else {}


def _named_blocks(args: Arguments, layers: int) -> tuple[tuple[str, ...], ...]:
    named = args.get("layer_blocks")
    if named is None:
        return ()
    if not isinstance(named, list | tuple) or not all(isinstance(layer, list | tuple) for layer in named):
        raise PerfError(
            f"model: layer_blocks is {named!r}; write a list of the blocks' names for every layer"
        )
    if len(named) != layers:
        raise PerfError(
            f"model: layer_blocks describes {len(named)} layers, num_layers is {layers}; make them agree"
        )
    for name in (name for layer in named for name in layer):
        if name not in BLOCKS:
            raise PerfError(f"model: layer_blocks has {name!r}; write some of {', '.join(BLOCKS)}")
    return tuple(map(tuple, named))
