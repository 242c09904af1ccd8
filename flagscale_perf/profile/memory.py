"""What modules and operators do with memory, in a step whose allocations were recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flagscale_perf.profile.attribution import Attribution, Part
from flagscale_perf.profile.events import NOTHING, Bools, Events, Ints
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
    """As in `MemoryRecord`; over several runs, sums, and the largest of one run."""

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


@dataclass(frozen=True)
class Levels:
    """Allocations of each thread in time order, with the level after each, for the thread and for all
    threads.

    Attributes:
        start_ns, sizes: of each thread's allocations.
        level: of what the thread holds, from 0 before its first; of all threads in `total`.
    """

    start_ns: dict[int, Ints]
    sizes: dict[int, Ints]
    level: dict[int, Ints]
    total: dict[int, Ints]

    @classmethod
    def of(cls, events: Events) -> Levels:
        """Empty if allocations were not recorded."""
        levels = cls({}, {}, {}, {})
        changes = events.allocations
        if changes is None:
            return levels
        total = np.cumsum(changes.size_bytes)
        for thread in np.unique(changes.thread):
            mine = changes.thread == thread
            sizes = changes.size_bytes[mine]
            levels.start_ns[int(thread)] = changes.start_ns[mine]
            levels.sizes[int(thread)] = sizes
            levels.level[int(thread)] = np.concatenate([[0], np.cumsum(sizes)])
            levels.total[int(thread)] = total[mine]
        return levels

    def slices(self, events: Events, thread: int, index: Ints) -> tuple[Ints, Ints]:
        """For each of the thread's events, the first allocation within it and the first after it."""
        times = self.start_ns[thread]
        begin = np.searchsorted(times, events.start_ns[index], side="left")
        end = np.searchsorted(times, events.end_ns[index], side="right")
        return begin, np.maximum(end, begin)

    def retained(self, events: Events) -> Ints:
        """What each event allocated and did not free."""
        found = np.zeros(len(events), np.int64)
        for thread, level in self.level.items():
            index = np.flatnonzero((events.thread == thread) & ~events.is_async)
            begin, end = self.slices(events, thread, index)
            found[index] = level[end] - level[begin]
        return found


def memory_of(events: Events, places: Attribution) -> dict[MemoryKey, Memory]:
    """Memory of all modules including what they call, and of each operator that a module calls directly. A
    module's backward pass lasts from the first node of its operators, or of the modules in it, to the last
    node in a row.
    """
    levels = Levels.of(events)
    found: dict[MemoryKey, Memory] = {}
    ops, op = operators_of(events, places)
    is_meant = _meant(events, places)
    for thread in levels.level:
        index = np.flatnonzero(is_meant & (events.thread == thread))
        begin, end = levels.slices(events, thread, index)
        touched = end > begin
        for event, first, after in zip(index[touched], begin[touched], end[touched], strict=True):
            run = _run(levels, thread, int(first), int(after))
            part, path = places.label(event), places.paths[places.module[event]]
            found.setdefault(MemoryKey(part, path, ops[op[event]]), Memory()).add(run)
        _add_backward(found, events, places, levels, thread)
    return found


def _add_backward(
    found: dict[MemoryKey, Memory], events: Events, places: Attribution, levels: Levels, thread: int
) -> None:
    """Adds the modules as a whole in the backward pass, where they have no ranges."""
    spans = np.array(list(_spans(events, places, thread)), np.int64).reshape(-1, 3)
    times = levels.start_ns[thread]
    begin = np.searchsorted(times, events.start_ns[spans[:, 1]], side="left")
    end = np.searchsorted(times, events.end_ns[spans[:, 2]], side="right")
    for module, first, after in zip(spans[:, 0].tolist(), begin.tolist(), end.tolist(), strict=True):
        if after > first:
            key = MemoryKey(Part.BACKWARD.label, places.paths[module], "")
            found.setdefault(key, Memory()).add(_run(levels, thread, first, after))


def _spans(events: Events, places: Attribution, thread: int) -> Iterator[tuple[int, int, int]]:
    """For each module, the first and the last of its consecutive nodes, including those of modules in it."""
    parent = places.nesting.parent
    above = {
        int(places.module[event]): int(places.module[parent[event]])
        for event in np.flatnonzero(places.is_module & (parent >= 0) & (places.part == Part.FORWARD))
    }
    in_node = places.nesting.inherited(np.where(places.is_node, 1, NOTHING)) > 0
    is_top = places.is_node & ((parent < 0) | ~in_node[np.maximum(parent, 0)]) & (events.thread == thread)
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
    """Mask of module ranges and of what lies directly in them, in the step or in nothing, but in no other
    operator.
    """
    parent = places.nesting.parent
    holds = places.is_module | places.is_step | places.is_user
    is_outer = (parent < 0) | holds[np.maximum(parent, 0)]
    meant: Bools = (is_outer | places.is_module) & ~places.is_step & ~events.is_async
    return meant


def _run(levels: Levels, thread: int, first: int, after: int) -> Memory:
    sizes = levels.sizes[thread][first:after]
    level = levels.level[thread]
    asked = sizes[sizes > 0]
    retained = int(level[after] - level[first])
    highest = int(level[first : after + 1].max() - level[first])
    return Memory(
        allocations=len(asked),
        allocated_bytes=int(asked.sum()),
        retained_bytes=retained,
        transient_bytes=highest - max(retained, 0),
        largest_bytes=int(asked.max(initial=0)),
        peak_bytes=int(levels.total[thread][first:after].max(initial=0)),
    )
