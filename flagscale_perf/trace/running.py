"""Function calls, operations and clears in progress, and which of them the code now running belongs to."""

from __future__ import annotations

import itertools
import os
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.trace.batches import step_of, trace_id_of
from flagscale_perf.trace.records import Kind

PUT, GET = int(Kind.PUT), int(Kind.GET)


@dataclass(slots=True, eq=False)
class Call:
    """A function call in progress. The tracer fills in what it needs.

    Attributes:
        function: its name.
        batch: what it was called with.
        parent: the call it was made in.
        start_ns: monotonic mark.
        identity: trace id and step.
        number: of its records; 0 until one is taken.
        is_kept: whether sampling keeps it; None until that is decided.
    """

    function: str
    batch: Any
    parent: Call | None
    start_ns: int
    compute_start_ns: int | None = None
    compute_end_ns: int | None = None
    has_computed: bool = False
    identity: tuple[str, int | None] = ("", None)
    number: int = 0
    is_kept: bool | None = None
    operations: int = 0
    get_ns: int = 0
    put_ns: int = 0
    get_bytes: int | None = 0
    put_bytes: int | None = 0

    def __post_init__(self) -> None:
        # now: what a batch says is gone when it comes back
        trace_id, training_step = identity_of(self.batch, self.parent)
        self.identity = trace_id or new_id(), training_step

    def add(self, operation: Operation) -> None:
        """Adds one of its operations to its sums."""
        size = operation.size_bytes
        self.operations += 1
        if operation.kind == GET:
            self.get_ns += operation.total_ns
            self.get_bytes = None if self.get_bytes is None or size is None else self.get_bytes + size
        else:
            self.put_ns += operation.total_ns
            self.put_bytes = None if self.put_bytes is None or size is None else self.put_bytes + size

    def parts(self, total_ns: int) -> tuple[int, int | None, int | None]:
        """Durations of get, compute and put, if it took so long altogether."""
        began, ended = self.compute_start_ns, self.compute_end_ns
        if began is None or ended is None:
            return total_ns, None, None
        put_ns = self.start_ns + total_ns - ended if self.has_computed else None
        return began - self.start_ns, ended - began, put_ns


@dataclass(slots=True, eq=False)
class Operation:
    """A put or get in progress, with its stages measured so far.

    Attributes:
        kind: a `Kind`.
        call: the call it is made in.
        start_ns: monotonic mark.
        identity: trace id and step, once they are asked for.
        known_bytes: where those of some fields are not known: of the others, and the names of these.
        storage_start_ns: of the storage manager's work.
        unit_start_ns: of the first request to a storage unit.
        unit_end_ns: of the last reply so far.
        open_units: requests without a reply.
        waits: for each request to a unit.
        coded_ns: making and reading messages meanwhile.
    """

    kind: int
    call: Call | None
    start_ns: int
    identity: tuple[str, int | None] | None = None
    total_ns: int = 0
    fields: tuple[str, ...] = ()
    size_bytes: int | None = None
    known_bytes: tuple[int, list[str]] | None = None
    select_ns: int | None = None
    serialize_ns: int | None = None
    unit_ns: int | None = None
    slowest_unit: str | None = None
    slowest_unit_ns: int | None = None
    notify_ns: int | None = None
    tags_ns: int | None = None
    decode_ns: int | None = None
    pack_ns: int | None = None
    storage_start_ns: int | None = None
    unit_start_ns: int | None = None
    unit_end_ns: int | None = None
    open_units: int = 0
    waits: list[tuple[str, int]] = field(default_factory=list)
    coded_ns: int = 0

    def waited_for(self, unit: str, took_ns: int) -> None:
        """Adds a request to a storage unit that has ended; all that were made to one unit count together."""
        all_ns = took_ns
        for name, each_ns in self.waits:
            all_ns += each_ns if name == unit else 0
        self.waits.append((unit, took_ns))
        if self.slowest_unit_ns is None or all_ns > self.slowest_unit_ns:
            self.slowest_unit_ns, self.slowest_unit = all_ns, unit


class Wait:
    """A request in progress for which samples to get next.

    Args:
        partition: of it; empty where it names none.
        task: of the consumer, as it calls itself.
        wanted: samples; None where it does not say.
    """

    __slots__ = ("call", "partition", "start_ns", "task", "trace_id", "wanted")

    def __init__(self, partition: str, task: str, wanted: int | None) -> None:
        self.partition, self.task, self.wanted = partition, task, wanted
        self.call = CALL.get()
        self.trace_id = new_id() if self.call is None else self.call.identity[0]
        self.start_ns = monotonic_ns()


@dataclass(slots=True, eq=False)
class Clear:
    """A clear in progress.

    Attributes:
        partition: that is cleared; None where only some samples are.
        batch: these; None where they are not known yet.
        start_ns: monotonic mark.
        call: the call it is made in.
    """

    partition: str | None
    batch: Any
    start_ns: int
    call: Call | None = field(default_factory=lambda: CALL.get())


CALL: ContextVar[Call | None] = ContextVar("flagscale_perf_call", default=None)
OPERATION: ContextVar[Operation | None] = ContextVar("flagscale_perf_operation", default=None)
CLEAR: ContextVar[Clear | None] = ContextVar("flagscale_perf_clear", default=None)
_STEP: ContextVar[int | None] = ContextVar("flagscale_perf_step", default=None)


def step(number: int) -> None:
    """Sets the training step of everything that follows, for batches that do not carry one."""
    _STEP.set(number)


def new_id() -> str:
    """A trace id that no other process makes, nor this one again."""
    return f"{_ids_begin}{next(_id_numbers):04x}"


def _begin_ids() -> None:
    global _ids_begin, _id_numbers
    _ids_begin, _id_numbers = os.urandom(6).hex(), itertools.count()


_ids_begin, _id_numbers = "", itertools.count()
_begin_ids()
os.register_at_fork(after_in_child=_begin_ids)


def identity_of(batch: Any, call: Call | None) -> tuple[str, int | None]:
    """Trace id and step, of the batch or else of the call that handles it."""
    trace_id, training_step = "", None
    if batch is not None:
        trace_id = trace_id_of(batch)
        training_step = step_of(batch) if batch.extra_info else None
    if call is not None and (not trace_id or training_step is None):
        return trace_id or call.identity[0], call.identity[1] if training_step is None else training_step
    return trace_id, _STEP.get() if training_step is None else training_step
