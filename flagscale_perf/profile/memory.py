"""What modules and operators do with memory, in a step whose allocations were recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flagscale_perf.profile.attribution import Attribution, Part
from flagscale_perf.profile.events import Bools, Events, Ints
from flagscale_perf.profile.rows import operators_of


class MemoryKey(NamedTuple):
    """A module, or an operator that it calls itself: `op` is "" for the module as a whole.

    Attributes:
        part: label of a `Part`.
        module: path of it, "" outside of any.
    """

    part: str
    module: str
    op: str


@dataclass
class Memory:
    """As in `MemoryRecord`; over several runs, sums, and the most of one run."""

    allocations: int = 0
    allocated_bytes: int = 0
    retained_bytes: int = 0
    transient_bytes: int = 0
    largest_bytes: int = 0
    peak_bytes: int = 0

    def add(self, other: Memory) -> None:
        """Another run."""
        self.allocations += other.allocations
        self.allocated_bytes += other.allocated_bytes
        self.retained_bytes += other.retained_bytes
        self.transient_bytes = max(self.transient_bytes, other.transient_bytes)
        self.largest_bytes = max(self.largest_bytes, other.largest_bytes)
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)


@dataclass(frozen=True)
class Levels:
    """Allocations of each thread in the order of time, with the level after each; that of all threads, too.

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
        """Nothing where allocations were not recorded."""
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
        """Of each of the thread's events, the first allocation in it and the first after it."""
        times = self.start_ns[thread]
        begin = np.searchsorted(times, events.start_ns[index], side="left")
        end = np.searchsorted(times, events.end_ns[index], side="right")
        return begin, np.maximum(end, begin)

    def retained(self, events: Events) -> Ints:
        """What each event has allocated and not freed."""
        found = np.zeros(len(events), np.int64)
        for thread, level in self.level.items():
            index = np.flatnonzero((events.thread == thread) & ~events.is_async)
            begin, end = self.slices(events, thread, index)
            found[index] = level[end] - level[begin]
        return found


def memory_of(events: Events, places: Attribution) -> dict[MemoryKey, Memory]:
    """Of all modules with what they call, and of each operator that a module calls itself. In the backward
    pass a module has the nodes of its own operators, and not those of the modules in it.
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
            name = ops[op[event]]
            found.setdefault(MemoryKey(part, path, name), Memory()).add(run)
            if name and places.part[event] == Part.BACKWARD:
                found.setdefault(MemoryKey(part, path, ""), Memory()).add(run)
    return found


def _meant(events: Events, places: Attribution) -> Bools:
    """Ranges of modules, and what lies in these, in the step or in nothing, but in no other operator."""
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
