"""Memory of modules and operators, in a step whose allocations were recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flagscale_perf.profile.attribution import Attribution, Part
from flagscale_perf.profile.events import Bools, Events, Ints
from flagscale_perf.profile.rows import operators_of


class MemoryKey(NamedTuple):
    """A module, or an operator that it calls directly: `op` is "" for the module as a whole.

    Attributes:
        phase: label of a `Part`.
        module: path of it, "" outside of any.
    """

    phase: str
    module: str
    op: str


@dataclass
class Memory:
    """Memory as in `MemoryRecord`; over several runs, sums, and the largest of one run."""

    allocations: int = 0
    allocated_bytes: int = 0
    retained_bytes: int = 0
    transient_bytes: int = 0
    largest_bytes: int = 0
    peak_bytes: int = 0

    def add(self, other: Memory) -> None:
        """Adds another run of the same module or operator."""
        self.allocations += other.allocations
        self.allocated_bytes += other.allocated_bytes
        self.retained_bytes += other.retained_bytes
        self.transient_bytes = max(self.transient_bytes, other.transient_bytes)
        self.largest_bytes = max(self.largest_bytes, other.largest_bytes)
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)


class _Levels(NamedTuple):
    """One thread's allocations in time order.

    Attributes:
        start_ns, sizes: time and bytes of each, negative when freed.
        level: bytes that the thread holds before the first and after each; after each, those of all threads
            in `total`.
    """

    start_ns: Ints
    sizes: Ints
    level: Ints
    total: Ints

    def within(self, start_ns: Ints, end_ns: Ints) -> tuple[Ints, Ints]:
        """The first allocation within each span, and the first after it."""
        begin = np.searchsorted(self.start_ns, start_ns, side="left")
        end = np.searchsorted(self.start_ns, end_ns, side="right")
        return begin, np.maximum(end, begin)

    def memory(self, first: int, after: int) -> Memory:
        """Memory between two allocations, the first one included."""
        sizes = self.sizes[first:after]
        asked = sizes[sizes > 0]
        retained = int(self.level[after] - self.level[first])
        highest = int(self.level[first : after + 1].max() - self.level[first])
        return Memory(
            allocations=len(asked),
            allocated_bytes=int(asked.sum()),
            retained_bytes=retained,
            transient_bytes=highest - max(retained, 0),
            largest_bytes=int(asked.max(initial=0)),
            peak_bytes=int(self.total[first:after].max(initial=0)),
        )


def _levels(events: Events) -> Iterator[tuple[int, _Levels]]:
    """Each thread that allocates; none if allocations were not recorded."""
    changes = events.allocations
    if changes is None:
        return
    total = np.cumsum(changes.size_bytes)
    for thread in np.unique(changes.thread):
        mine = changes.thread == thread
        sizes = changes.size_bytes[mine]
        level = np.concatenate([[0], np.cumsum(sizes)])
        yield int(thread), _Levels(changes.start_ns[mine], sizes, level, total[mine])


def retained_of(events: Events) -> Ints:
    """Bytes that each event allocated and did not free; 0 where allocations were not recorded."""
    found = np.zeros(len(events), np.int64)
    for thread, levels in _levels(events):
        index = np.flatnonzero((events.thread == thread) & ~events.is_async)
        begin, end = levels.within(events.start_ns[index], events.end_ns[index])
        found[index] = levels.level[end] - levels.level[begin]
    return found


def memory_of(events: Events, places: Attribution) -> dict[MemoryKey, Memory]:
    """Memory of all modules including what they call, and of each operator that a module calls directly. A
    module's backward pass lasts from the first node of its operators, or of the modules in it, to the last
    node in a row.
    """
    found: dict[MemoryKey, Memory] = {}
    ops, op = operators_of(events, places)
    is_meant = _meant(events, places)
    for thread, levels in _levels(events):
        index = np.flatnonzero(is_meant & (events.thread == thread))
        keys = [
            MemoryKey(places.label(event), places.paths[places.module[event]], ops[op[event]])
            for event in index.tolist()
        ]
        # modules as a whole have no ranges in the backward pass
        spans = np.array(list(_spans(events, places, thread)), np.int64).reshape(-1, 3)
        keys += [MemoryKey(Part.BACKWARD.label, places.paths[module], "") for module in spans[:, 0].tolist()]
        begin, end = levels.within(
            events.start_ns[np.append(index, spans[:, 1])], events.end_ns[np.append(index, spans[:, 2])]
        )
        for key, first, after in zip(keys, begin.tolist(), end.tolist(), strict=True):
            if after > first:
                found.setdefault(key, Memory()).add(levels.memory(first, after))
    return found


def _spans(events: Events, places: Attribution, thread: int) -> Iterator[tuple[int, int, int]]:
    """The first and the last of each module's consecutive nodes, including those of modules in it."""
    parent = places.nesting.parent
    above = {
        int(places.module[event]): int(places.module[parent[event]])
        for event in np.flatnonzero(places.is_module & (parent >= 0) & (places.part == Part.FORWARD))
    }
    is_top = places.is_node & ~places.nesting.inside(places.is_node) & (events.thread == thread)
    running: dict[int, tuple[int, int]] = {}
    for node in np.flatnonzero(is_top).tolist():
        around = []
        module = int(places.module[node])
        while module and module not in around:
            around.append(module)
            module = above.get(module, 0)
        for ended in running.keys() - set(around):
            yield (ended, *running.pop(ended))
        for each in around:
            running[each] = (running[each][0] if each in running else node, node)
    for module, (first, last) in running.items():
        yield module, first, last


def _meant(events: Events, places: Attribution) -> Bools:
    """Module ranges, and what lies directly in them, in the step or in nothing, but in no operator."""
    parent = places.nesting.parent
    holds = places.is_module | places.is_step | places.is_user
    is_outer = (parent < 0) | holds[np.maximum(parent, 0)]
    meant: Bools = (is_outer | places.is_module) & ~places.is_step & ~events.is_async
    return meant
