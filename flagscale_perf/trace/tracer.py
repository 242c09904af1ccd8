"""Makes the records of one process: what a client of the queue did, and the calls it did it for.

The wrappers around the queue's own code (`trace.plane`, and what calls it in `flagscale_perf/hosts`) make an
`Operation` or a `Call` at its start and pass it to the tracer at its end. Only then is it decided whether to
keep it, and at most one record is made. `active` is the tracer of this process: None while nothing is traced.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, ParamSpec, TypeVar

from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.errors import raised_by_signal
from flagscale_perf.spine.records import Record, tuple_of
from flagscale_perf.trace.batches import (
    Place,
    by_partition,
    extent_of,
    fields_of,
    key_number,
    known_bytes,
    payload_bytes,
    place_of,
    ranges_of,
    stamp,
    trace_id_of,
    versions_of,
)
from flagscale_perf.trace.options import Sampling, TraceOptions
from flagscale_perf.trace.records import (
    ONE,
    Begun,
    CallRecord,
    ClearRecord,
    OperationRecord,
    StartRecord,
    WaitRecord,
)
from flagscale_perf.trace.running import (
    CALL,
    CLEAR,
    OPERATION,
    PUT,
    Call,
    Clear,
    Operation,
    Wait,
    identity_of,
    new_id,
)
from flagscale_perf.trace.side import CLEAR_ROOM, Side, parts_of

_NOWHERE: tuple[None, None, tuple[int, ...]] = (None, None, ())
# what goes from an operation into its record as it is, before and after the slowest unit's name; from a call
_TO_THE_UNIT = attrgetter("kind", "start_ns", "total_ns", "select_ns", "serialize_ns", "unit_ns")
_AFTER_THE_UNIT = attrgetter("slowest_unit_ns", "notify_ns", "tags_ns", "decode_ns", "pack_ns", "size_bytes")
_OF_OPERATIONS = attrgetter("operations", "get_ns", "put_ns", "get_bytes", "put_bytes")
P = ParamSpec("P")
Given = TypeVar("Given")


def _guarded(method: Callable[P, Given]) -> Callable[P, Given | None]:
    """The wall between the tracer and the program that it traces: a failure ends tracing and nothing else."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Given | None:
        try:
            return method(*args, **kwargs)
        except Exception as failure:  # whatever it is, the program goes on
            fail(failure)
            return None

    return call


class Tracer(Side):
    """Makes the records of this process.

    Args:
        options: what is traced, and how much of it.
        put: takes a record; must not raise or wait.
    """

    def __init__(self, options: TraceOptions, put: Callable[[Record], None]) -> None:
        self.options = options
        super().__init__(put)
        self._trace, self._detail = options.trace, options.detail
        self._sampling = Sampling.of(options)
        self._keeps_all = self._sampling.keeps_all
        self._slow_ns = sys.maxsize if options.slow_ns is None else options.slow_ns
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Restarts numbers and names, as a forked child must."""
        super().begin()
        self._numbers = itertools.count(1)

    @_guarded
    def begin_call(self, function: str, batch: Any) -> Call:
        """Begins a call, to which everything that follows belongs; None if tracing has just failed."""
        call = Call(function, batch, CALL.get(), monotonic_ns())
        CALL.set(call)
        self.begin_stage(Begun.CALL, call, call.start_ns)
        return call

    @_guarded
    def begin_stage(self, begun: Begun, call: Call, at_ns: int) -> None:
        """A call or a later stage of it begins. Under sampling this is not recorded: it may not be kept."""
        if self._trace and self._keeps_all:
            partitions = getattr(call.batch, "partition_ids", None)  # a batch of keys has none
            names = self._name(call.function), self._name(partitions[0]) if partitions else 0
            self._put(StartRecord(0, begun, call.start_ns, at_ns, *names, call.identity[0]))

    def follows_operations(self) -> bool:
        """Whether anything is told of an operation that begins here: in no call it takes `detail`."""
        return self._detail or self.options.stamp or CALL.get() is not None

    def begin_operation(self, kind: int, batch: Any, partition: str = "") -> Operation:
        """Begins an operation on this batch, or a put of new samples of a partition."""
        operation = Operation(kind, CALL.get(), monotonic_ns())
        OPERATION.set(operation)
        if self._detail:
            self._begin_operation(operation, batch, partition)
        return operation

    @_guarded
    def stamp(self, batch: Any) -> None:
        """Called when a put is about to store its samples' tags; adds the batch's trace id, or a new one, if
        `options.stamp` asks for it.
        """
        operation = OPERATION.get()
        if not self.options.stamp or operation is None or operation.kind != PUT:
            return
        stamp(batch, (operation.identity or identity_of(batch, operation.call))[0] or new_id())

    @_guarded
    def end_operation(self, operation: Operation, batch: Any, data: Any, error: BaseException | None) -> None:
        """Ends an operation. `batch` and `data`: its samples, and what was put, got or merged; None where it
        failed before, for `error`.
        """
        operation.total_ns = monotonic_ns() - operation.start_ns
        call = operation.call
        if call is None and not self._detail:
            return
        fields: Mapping[str, Any] = {} if data is None else fields_of(data)
        operation.fields = tuple(fields)
        operation.size_bytes = None if data is None else payload_bytes(fields)
        if operation.size_bytes is None and fields:
            operation.known_bytes = known_bytes(fields)
        if call is not None:
            call.add(operation)
            if call.is_kept is None and not self._keeps_all:
                self._is_kept(call, place_of(batch))
        if self._detail:
            self._record(operation, batch, error)

    @_guarded
    def begin_wait(self, wait: Wait) -> Wait | None:
        """Begins a request for which samples to get next; None where none is recorded."""
        if not self._detail:
            return None
        at_ns, call = wait.start_ns, wait.call
        names = 0 if call is None else self._name(call.function), self._name(wait.partition)
        self._put(StartRecord(0, Begun.WAIT, at_ns, at_ns, *names, wait.trace_id))
        return wait

    @_guarded
    def end_wait(self, wait: Wait, batch: Any, error: BaseException | None) -> None:
        """Ends it, with the samples that it is told."""
        total_ns = monotonic_ns() - wait.start_ns
        call = wait.call if self._trace and self._keeps_all else None  # of a sample it is not known yet
        call_number = 0 if call is None else self._take_number(call)
        task = self._name(wait.task) if wait.task else 0
        names = self._name(wait.partition), self._error_name(error)
        rows = 0 if batch is None else len(batch.global_indexes)
        self._put(
            WaitRecord(
                0, call_number, wait.start_ns, total_ns, *names, task, wait.wanted, rows, wait.trace_id
            )
        )

    @_guarded
    def add_keys(self, keys: str | Sequence[str], batch: Any) -> None:
        """Records which sample of the batch has which of its keys."""
        held = [keys] if isinstance(keys, str) else keys
        pairs = zip(batch.global_indexes, map(key_number, held), strict=False)
        self._put_keys(monotonic_ns(), pairs, batch.partition_ids[0])

    @_guarded
    def end_clear(self, clear: Clear, error: BaseException | None) -> None:
        """Ends a clear."""
        total_ns = monotonic_ns() - clear.start_ns
        if not self._detail:
            return
        is_partition, call = int(clear.partition is not None), clear.call
        place = place_of(clear.batch)
        call_number = 0 if call is None or not self._trace else self._number_of(call, place)
        cleared = by_partition(clear.batch)
        if clear.partition is not None:
            cleared.setdefault(clear.partition, [])
        error_name = self._error_name(error)
        for partition, rows in cleared.items():
            name, ranges = self._name(partition), ranges_of(rows)
            for part, is_cut in parts_of(ranges, CLEAR_ROOM):
                self._put(
                    ClearRecord(
                        0, call_number, clear.start_ns, total_ns, name, error_name, is_partition, is_cut, part
                    )
                )

    @_guarded
    def end_call(self, call: Call, error: BaseException | None) -> None:
        """Ends a call that returned or failed."""
        total_ns = monotonic_ns() - call.start_ns
        CALL.set(call.parent)
        is_forced = error is not None or total_ns >= self._slow_ns
        if not self._trace or not (is_forced or self._is_kept(call, place_of(call.batch))):
            return
        number = self._take_number(call)
        weight = ONE if is_forced else self._sampling.weight_milli
        parent = 0 if call.parent is None else self._number_of(call.parent, place_of(call.batch))
        trace_id, training_step = call.identity
        times = call.start_ns, total_ns, *call.parts(total_ns)
        names = self._name(call.function), self._error_name(error)
        rest = call.batch.size, *_OF_OPERATIONS(call), *names, weight, training_step, trace_id
        self._put(tuple_of(CallRecord, (0, number, parent, *times, *rest)))

    @_guarded
    def _begin_operation(self, operation: Operation, batch: Any, partition: str) -> None:
        """Records that the operation has begun. Costs as little as its end may: both are made each time."""
        call = operation.call
        trace_id, training_step = identity_of(batch, call)
        trace_id = trace_id or new_id()
        operation.identity = trace_id, training_step
        if not self._keeps_all:
            return
        if not partition and batch is not None and batch.partition_ids:
            partition = batch.partition_ids[0]
        names, start_ns = self._names, operation.start_ns
        function_name = 0 if call is None else names.get(call.function) or self._name(call.function)
        partition_name = (names.get(partition) or self._name(partition)) if partition else 0
        self._put(
            tuple_of(
                StartRecord, (0, operation.kind, start_ns, start_ns, function_name, partition_name, trace_id)
            )
        )

    def _record(self, operation: Operation, batch: Any, error: BaseException | None) -> None:
        """Makes the record. Most of tracing's cost is here, so it avoids every call that it can."""
        rows: Sequence[int] = () if batch is None else batch.global_indexes
        first, last, ranges = extent_of(rows) if rows else _NOWHERE
        partition = batch.partition_ids[0] if rows else ""
        weight = ONE
        if not self._keeps_all:
            weight = self._weight(operation, batch, (partition, first), error)
            if not weight:
                return
        call, names, unit = operation.call, self._names, operation.slowest_unit
        trace_id, training_step = operation.identity or identity_of(batch, call)
        call_number = 0 if call is None or not self._trace else self._number_of(call, (partition, first))
        partition_name = names.get(partition) or self._name(partition)
        error_name = self._error_name(error)
        unit_name = None if unit is None else names.get(unit) or self._name(unit)
        fields = operation.fields
        field_set = self._field_sets.get(fields) or self._field_set(fields) if fields else None
        number = next(self._numbers)
        if ranges:
            self._put_ranges(number, ranges)
        if len(operation.waits) > 1:
            self._put_units(number, operation.waits)
        if operation.kind == PUT:
            self._put_versions(number, versions_of(batch))
        if operation.known_bytes is not None:
            self._put_unsized(number, *operation.known_bytes)
        self._put(
            tuple_of(
                OperationRecord,
                (
                    0,  # process: the writer's. By position, as 26 keywords cost time (test_tracer_fields.py)
                    *(number, call_number),
                    *_TO_THE_UNIT(operation),
                    unit_name,
                    *_AFTER_THE_UNIT(operation),
                    *(len(rows), len(fields), first, last, partition_name),
                    *(error_name, weight, training_step, trace_id, field_set),
                ),
            )
        )

    def _weight(self, operation: Operation, batch: Any, place: Place, error: BaseException | None) -> int:
        """Weight of a sampled operation; 0 if it is not kept."""
        if error is not None or operation.total_ns >= self._slow_ns:
            return ONE
        trace_id = "" if batch is None else trace_id_of(batch)
        return self._sampling.weight_milli if self._sampling.keeps(trace_id, *place) else 0

    def _number_of(self, call: Call, place: Place) -> int:
        """The number by which records refer to the call, which ends later; 0 if the call is not kept."""
        return self._take_number(call) if self._is_kept(call, place) else 0

    def _take_number(self, call: Call) -> int:
        if not call.number:
            with self._lock:  # two of its operations may end at a time
                call.number = call.number or next(self._numbers)
        return call.number

    def _is_kept(self, call: Call, place: Place) -> bool:
        """Decided once: by the call's batch or, if that has neither an id nor rows, as a batch of keys, by
        the first batch got for it.
        """
        if call.is_kept is None and not self._keeps_all:
            own = place_of(call.batch)
            trace_id = trace_id_of(call.batch)
            partition, first = place if own[1] is None else own
            is_known = trace_id or first is not None
            call.is_kept = not is_known or self._sampling.keeps(trace_id, partition, first)
        return call.is_kept is not False


active: Tracer | None = None
_has_failed = False


def fail(error: Exception) -> None:
    """Ends tracing in this process and reports it once. An exception raised by a signal handler belongs to
    the program.
    """
    global active, _has_failed
    if raised_by_signal(error):
        raise error
    active = None
    if not _has_failed:
        _has_failed = True
        note(f"tracing ends in process {os.getpid()}: {type(error).__name__}: {error}")


def note(text: str) -> None:
    """Prints a line to stderr, if that can be written to."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"flagscale_perf: {text}\n")
        sys.stderr.flush()


def _begin_in_child() -> None:
    """Restarts in a forked child: the writer does not know the parent's numbers and names here."""
    if active is not None:
        active.begin()
    for current in (CALL, OPERATION, CLEAR):
        current.set(None)


os.register_at_fork(after_in_child=_begin_in_child)
