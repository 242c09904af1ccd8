"""The profiler's events of one step, as columns, and how they nest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
NOTHING = -1  # stands for a missing index, sequence number or device time


@dataclass(frozen=True)
class Kernels:
    """Kernels of devices, sorted by start.

    Attributes:
        names: distinct names; `name` has indexes into them.
        start_ns: on the monotonic clock.
        event: index of the event that launched it; -1 where that is not known.
        stream: of the device.
    """

    names: Sequence[str]
    name: Ints
    start_ns: Ints
    duration_ns: Ints
    event: Ints
    stream: Ints

    @property
    def busy_ns(self) -> int:
        """Time in which at least one kernel was running."""
        if not len(self.start_ns):
            return 0
        reached = np.maximum.accumulate(self.start_ns + self.duration_ns)
        gaps = np.maximum(self.start_ns[1:] - reached[:-1], 0).sum()
        return int(reached[-1] - self.start_ns[0] - gaps)


@dataclass(frozen=True)
class Allocations:
    """Memory allocated (positive) and freed (negative), in time order."""

    start_ns: Ints
    size_bytes: Ints
    thread: Ints


@dataclass(frozen=True)
class Inputs:
    """The inputs of operators in a step with shapes.

    Attributes:
        shapes: of each event: a shape for each argument, a list of shapes for a list of tensors.
        dtypes: of each event: a name for each argument, such as "float"; "" for what is no tensor.
        values: of each event: each argument that is a number or a list of numbers; None for the others.
    """

    shapes: Sequence[Sequence[Any]]
    dtypes: Sequence[Sequence[str]]
    values: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Events:
    """Events of the host, sorted by start.

    Attributes:
        names: distinct names; `name` has indexes into them.
        start_ns: on the monotonic clock.
        thread: which one it began on.
        scope: torch's RecordScope.
        sequence: number that a forward operator and its backward node have in common; -1: none.
        forward_thread: of a backward node, the thread of its forward operator; 0: none.
        is_async: it began on its thread but lies in no other event of it: a collective.
        device_ns: time of the kernels that it launched itself; -1 without a device.
        metadata: by an event's index: what the profiler says of a collective.
        kernels: None without a device.
        allocations, inputs: None where they were not asked for.
        dropped: how many events beyond those that may be kept.
    """

    names: Sequence[str]
    name: NDArray[np.int32]
    start_ns: Ints
    duration_ns: Ints
    thread: Ints
    scope: NDArray[np.int8]
    sequence: Ints
    forward_thread: Ints
    is_async: Bools
    device_ns: Ints
    metadata: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    kernels: Kernels | None = None
    allocations: Allocations | None = None
    inputs: Inputs | None = None
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.name)

    @property
    def end_ns(self) -> Ints:
        """End of each event."""
        return self.start_ns + self.duration_ns

    def marked(self, is_meant: Sequence[bool] | Bools) -> Bools:
        """Mask of the events whose name is selected; `is_meant` has one value for each of `names`."""
        marks = np.asarray(is_meant, bool)
        return marks[self.name] if len(marks) else np.zeros(len(self), bool)


@dataclass(frozen=True)
class Nesting:
    """How the events of one thread nest. An asynchronous event lies in no other, and none in it.

    Attributes:
        parent: index of the event around it; -1: none.
        previous: index of the last one before it with the same parent; -1: none.
        last: index of the last one in it; -1: none.
        depth: how many are around it.
    """

    parent: Ints
    previous: Ints
    last: Ints
    depth: Ints

    @classmethod
    def of(cls, events: Events) -> Nesting:
        """The nesting of these events, computed one depth at a time, never event by event."""
        parent, previous, last = (np.full(len(events), NOTHING, np.int64) for _ in range(3))
        depth, end_ns = np.zeros(len(events), np.int64), events.end_ns
        for thread in np.unique(events.thread[~events.is_async]):
            index = np.flatnonzero((events.thread == thread) & ~events.is_async)
            depth[index] = _depths(events.start_ns[index], end_ns[index])
            above = index[:0]
            for place in _by_depth(depth[index]):
                here = index[place]
                if len(above):
                    parent[here] = above[np.searchsorted(above, here) - 1]
                    last[parent[here]] = here  # the last of equal indexes stays
                same = parent[here[1:]] == parent[here[:-1]]
                previous[here[1:][same]] = here[:-1][same]
                above = here
        return cls(parent, previous, last, depth)

    @cached_property
    def _inner(self) -> Sequence[Ints]:
        """The indexes of all events that lie in another one, by depth."""
        return _by_depth(self.depth)[1:]

    def inherited(self, own: Ints) -> Ints:
        """Each event's value, or where it is -1, that of the nearest enclosing event with another value."""
        found = own.copy()
        for here in self._inner:
            here = here[(found[here] < 0) & (self.parent[here] >= 0)]
            found[here] = found[self.parent[here]]
        return found

    def within(self, is_meant: Bools) -> Bools:
        """A mask: these events, and those that lie in one of them."""
        mask: Bools = self.inherited(np.where(is_meant, 1, NOTHING)) > 0
        return mask

    def inside(self, is_meant: Bools) -> Bools:
        """A mask: the events that lie in one of these."""
        mask: Bools = (self.parent >= 0) & self.within(is_meant)[np.maximum(self.parent, 0)]
        return mask


def _by_depth(depth: Ints) -> Sequence[Ints]:
    """The places of each depth. Numbers of one byte are sorted without comparing any."""
    order = np.argsort(depth.astype(np.min_scalar_type(depth.max(initial=0))), kind="stable")
    return np.split(order, np.cumsum(np.bincount(depth))[:-1])


def _depths(start_ns: Ints, end_ns: Ints) -> Ints:
    """How many events enclose each; sorted by start, at equal starts the outer one comes first."""
    closed = np.searchsorted(np.sort(end_ns), start_ns, side="right")
    # an event that takes no time is closed at its own start: neither it nor later ones count as closed before
    is_empty = (start_ns == end_ns).astype(np.int64)
    later = np.cumsum(is_empty[::-1])[::-1]
    first_after = np.searchsorted(start_ns, start_ns, side="right")
    own = later - np.append(later, 0)[first_after]
    depths: Ints = np.arange(len(start_ns)) - (closed - own)
    return depths
