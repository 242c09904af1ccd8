"""Finds layers within a region compiled from a whole model, where modules have no ranges.

vLLM keeps attention out of what it compiles: the n-th attention of a forward pass is that of the n-th layer.
Where a region calls as many matrix products between any two of them as before the first and after the last
together, a layer ends with its last product (and the collective behind it): what follows is the next layer's
normalisation. Otherwise a layer begins with its attention and lasts until the next one.

What is found is added to the events as ranges of modules, so that everything else goes on as without a
compiler. Which linear layer a product belongs to stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from flagscale_perf.profile.events import NOTHING, Events, Inputs, Ints, Kernels
from flagscale_perf.profile.operations import named
from flagscale_perf.profile.ranges import MODULE, paths_of

ATTENTION = frozenset(
    {
        "vllm::unified_attention",
        "vllm::unified_attention_with_output",
        "vllm::unified_mla_attention",
        "vllm::unified_mla_attention_with_output",
    }
)
CACHE = frozenset({"vllm::unified_kv_cache_update", "vllm::unified_mla_kv_cache_update"})
PRODUCTS = frozenset(
    {
        "_C::onednn_mm",
        "_C::weight_packed_linear",
        "_C::onednn_scaled_mm",
        "_C::cpu_gemm_wna16",
        "aten::mm",
        "aten::addmm",
        "mkldnn::_linear_pointwise",
        "mkl::_mkl_linear",
        "aten::linear",
    }
)
GRAPH = "## Call CompiledFxGraph"  # begins the range that the compiler has around what it has made
REGION = "compiled region"  # the operator that stands for compiled code which is no operator of its own
_LAYER_CLASS = "AttentionLayerBase"
_FUNCTION, _USER = 0, 7  # of torch's RecordScope


@dataclass(frozen=True)
class _Range:
    name: str
    scope: int
    thread: int
    start_ns: int
    end_ns: int


def attention_paths(models: nn.Module | Sequence[nn.Module]) -> list[str]:
    """Paths of a model's attention modules in layer order; empty if it is not vLLM's."""
    return [
        path
        for path, module in paths_of(models).items()
        if any(kind.__name__ == _LAYER_CLASS for kind in type(module).__mro__)
    ]


def layered(events: Events, attention: Sequence[str]) -> Events:
    """The events with added ranges of layers and their attention modules, and with the compiler's own ranges
    as operators. Unchanged if there is nothing to find layers by.

    Args:
        events: of a step.
        attention: paths of the modules, in the order in which they run.
    """
    events = _regions_as_operators(events)
    found = np.flatnonzero(_outermost(events, ATTENTION))
    if not attention or not len(found) or len(found) % len(attention):
        return events
    ranges: list[_Range] = []
    for first in range(0, len(found), len(attention)):
        ranges += _Forward(events, found[first : first + len(attention)]).ranges(attention)
    return _with(events, ranges)


class _Forward:
    def __init__(self, events: Events, attention: Ints) -> None:
        self._events, self._attention = events, attention
        self._thread = int(events.thread[attention[0]])
        self._end_ns = events.end_ns
        self._products = _outermost(events, PRODUCTS) & (events.thread == self._thread)
        self._collectives = events.marked([named(name) is not None for name in events.names])
        self._caches = events.marked([name in CACHE for name in events.names])

    def ranges(self, paths: Sequence[str]) -> list[_Range]:
        bounds, thread = self._bounds(), self._thread
        made = []
        for place, path in enumerate(paths):
            begin, end = bounds[place], bounds[place + 1]
            layer = layer_of(path)
            if layer and end > begin:
                made.append(_Range(MODULE + layer, _USER, thread, begin, end))
                made.append(_Range(REGION, _FUNCTION, thread, begin, end))
            made.append(_Range(MODULE + path, _USER, thread, self._begins(place), self._ends(place)))
        return made

    def _begins(self, place: int) -> int:
        """Start of an attention module, which writes its keys and values first."""
        index = int(self._attention[place])
        before = np.flatnonzero(self._caches[:index] & (self._events.thread[:index] == self._thread))
        earlier = int(self._attention[place - 1]) if place else -1
        if len(before) and before[-1] > earlier:
            index = int(before[-1])
        return int(self._events.start_ns[index])

    def _ends(self, place: int) -> int:
        return int(self._end_ns[self._attention[place]])

    def _bounds(self) -> list[int]:
        graph = self._graph()
        if graph is not None:
            begin, end = int(self._events.start_ns[graph]), int(self._end_ns[graph])
            products = np.flatnonzero(self._products & (self._events.start_ns >= begin))
            products = products[self._end_ns[products] <= end]
            counts = np.searchsorted(products, self._attention)
            before, after = int(counts[0]), len(products) - int(counts[-1])
            if (np.diff(counts) == before + after).all() and before and after:
                ends = [self._settled(int(products[count + after - 1]), end) for count in counts]
                return [self._first(begin, int(products[0])), *ends]
        starts = [self._begins(place) for place in range(len(self._attention))]
        return [*starts, self._ends(len(starts) - 1)]

    def _graph(self) -> int | None:
        events = self._events
        inside = events.marked([name.startswith(GRAPH) for name in events.names])
        inside &= (events.thread == self._thread) & (events.start_ns <= events.start_ns[self._attention[0]])
        inside &= self._end_ns >= self._end_ns[self._attention[-1]]
        found = np.flatnonzero(inside)
        return int(found[-1]) if len(found) else None

    def _settled(self, product: int, end: int) -> int:
        """The end of a layer's last product and of the collective that follows it."""
        stop = int(self._end_ns[product])
        ours = self._events.thread == self._thread
        later = np.flatnonzero(ours & (self._events.start_ns >= stop) & (self._end_ns <= end))
        if len(later) and self._collectives[later[0]]:
            stop = int(self._end_ns[later[0]])
        return stop

    def _first(self, begin: int, product: int) -> int:
        """Start of the first layer; a collective ahead of the first product belongs to the embedding."""
        ours = self._collectives & (self._events.thread == self._thread) & (self._events.start_ns >= begin)
        ahead = np.flatnonzero(ours & (self._end_ns <= self._events.start_ns[product]))
        return int(self._end_ns[ahead[-1]]) if len(ahead) else begin


def layer_of(path: str) -> str:
    """ "model.layers.3" for "model.layers.3.self_attn.attn"; "" if the path has no number."""
    parts = path.split(".")
    places = [place for place, part in enumerate(parts) if part.isdecimal()]
    return ".".join(parts[: places[-1] + 1]) if places else ""


def _outermost(events: Events, names: Iterable[str]) -> np.ndarray:
    wanted = set(names)
    found = events.marked([name in wanted for name in events.names]) & ~events.is_async
    index = np.flatnonzero(found)
    for thread in np.unique(events.thread[index]):
        here = index[events.thread[index] == thread]
        reached = np.maximum.accumulate(events.end_ns[here])
        found[here[1:][events.start_ns[here[1:]] < reached[:-1]]] = False
    return found


def _regions_as_operators(events: Events) -> Events:
    graphs = events.marked([name.startswith(GRAPH) for name in events.names])
    if not graphs.any():
        return events
    scope = events.scope.copy()
    scope[graphs] = _FUNCTION
    return replace(events, scope=scope)


def _with(events: Events, ranges: Sequence[_Range]) -> Events:
    """Events and ranges merged and sorted by start. At equal starts the longer one comes first, then the
    range made first, then the event.
    """
    names = {name: place for place, name in enumerate(events.names)}
    for made in ranges:
        names.setdefault(made.name, len(names))
    count = len(ranges)
    of_ranges = {
        "name": [names[made.name] for made in ranges],
        "start_ns": [made.start_ns for made in ranges],
        "duration_ns": [made.end_ns - made.start_ns for made in ranges],
        "thread": [made.thread for made in ranges],
        "scope": [made.scope for made in ranges],
        "sequence": [NOTHING] * count,
        "forward_thread": [0] * count,
        "is_async": [0] * count,
        "device_ns": [NOTHING if events.kernels is None else 0] * count,
    }
    columns: dict[str, Any] = {
        field: np.concatenate([np.asarray(values, vars(events)[field].dtype), vars(events)[field]])
        for field, values in of_ranges.items()
    }
    order = np.lexsort((np.arange(len(columns["name"])), -columns["duration_ns"], columns["start_ns"]))
    moved = np.argsort(order)[count:]  # new index of each event
    return replace(
        events,
        names=list(names),
        **{field: column[order] for field, column in columns.items()},
        metadata={int(moved[at]): said for at, said in events.metadata.items()},
        kernels=events.kernels and _moved_kernels(events.kernels, moved),
        inputs=events.inputs and _moved_inputs(events.inputs, count, order),
    )


def _moved_kernels(kernels: Kernels, moved: Ints) -> Kernels:
    return replace(kernels, event=np.where(kernels.event >= 0, moved[kernels.event], NOTHING))


def _moved_inputs(inputs: Inputs, ranges: int, order: Ints) -> Inputs:
    def column(values: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        return [() if at < ranges else values[at - ranges] for at in order.tolist()]

    return Inputs(column(inputs.shapes), column(inputs.dtypes), column(inputs.values))
