"""What an adapter of a data plane tells the tracer: that samples are put, got, waited for, updated or
cleared, which they are, and which part of that is going on.

An adapter (one file in `flagscale_perf/hosts`) knows how a queue names these things and wraps its functions;
here nothing is known of any queue. A batch is the queue's own object: see `trace.batches.Batch`. `run` is the
queue's own function with its arguments. What it returns or raises is returned or raised; it runs once, traced
or not.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar, Token
from typing import Any

from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.trace import running
from flagscale_perf.trace import tracer as tracing
from flagscale_perf.trace.records import Kind
from flagscale_perf.trace.running import CLEAR, GET, OPERATION, Operation

Run = Callable[[], Awaitable[Any]]
Method = Callable[..., Awaitable[Any]]
Given = tuple[Any, ...]  # arguments of a call, by place
Named = dict[str, Any]  # and by name
Operated = tuple[Any, str, Any]
Request = tuple[Operation, int, int, Token[Operation | None]]
_ASKING: ContextVar[Operation | None] = ContextVar("flagscale_perf_asking", default=None)


def operated(kind: Kind, read: Callable[[Given, Named], Operated]) -> Callable[[Method], Method]:
    """A decorator of what puts, gets or updates samples: each call of it is an operation.

    It is one coroutine around the queue's own, and asks the tracer twice: every layer more costs microseconds
    in each operation, as the processor's caches hold none of it by then.

    Args:
        kind: of the operation. A put returns its batch, a get its data.
        read: what the arguments of a call, by place and by name, say: the batch, None where a put makes new
            samples; the partition of these, or ""; and the data that are put, or that an update gives, a
            mapping of fields to values.
    """
    number, is_put, is_get = int(kind), kind is Kind.PUT, kind is Kind.GET

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        async def operate(*args: Any, **kwargs: Any) -> Any:
            tracer = tracing.active
            if tracer is None or not tracer.follows_operations():
                return await method(*args, **kwargs)
            batch, partition, data = read(args, kwargs)
            operation = tracer.begin_operation(number, batch, partition)
            try:
                found = await method(*args, **kwargs)
            except BaseException as error:  # one that is cancelled ends, too
                tracer.end_operation(operation, batch, None, error)
                raise
            finally:
                OPERATION.set(None)
            tracer.end_operation(operation, found if is_put else batch, found if is_get else data, None)
            return found

        return operate

    return decorate


async def wait(run: Run, partition: str, task: str, wanted: int | None) -> Any:
    """A request of consumer `task` for `wanted` samples; returns their batch, empty if there are too few."""
    tracer = tracing.active
    waiting = None if tracer is None else tracer.begin_wait(running.Wait(partition, task, wanted))
    if tracer is None or waiting is None:
        return await run()
    try:
        batch = await run()
    except BaseException as error:
        tracer.end_wait(waiting, None, error)
        raise
    tracer.end_wait(waiting, batch, None)
    return batch


async def clear(run: Run, partition: str | None, batch: Any) -> Any:
    """These samples are cleared, or all of a partition: then `clearing` may say which they are."""
    tracer = tracing.active
    if tracer is None:
        return await run()
    cleared = running.Clear(partition, batch, monotonic_ns())
    CLEAR.set(cleared)
    error: BaseException | None = None
    try:
        return await run()
    except BaseException as raised:
        error = raised
        raise
    finally:
        CLEAR.set(None)
        tracer.end_clear(cleared, error)


def clearing(batch: Any) -> None:
    """The samples of the clear that is going on."""
    if (cleared := CLEAR.get()) is not None:
        cleared.batch = batch


def keyed(keys: str | Sequence[str], batch: Any) -> None:
    """These samples have been given these keys."""
    if tracing.active is not None and batch.global_indexes:
        tracing.active.add_keys(keys, batch)


def tagging(batch: Any) -> None:
    """A put is about to store its samples' tags: the one thing that stays with a sample."""
    if tracing.active is not None:
        tracing.active.stamp(batch)


# Parts of an operation: what begins one is called before it, what ends it after it, with what the former
# returned. They are called several times in an operation, so they wrap nothing.


def storing() -> Operation | None:
    """The storage's part begins: it lays values out, asks units, and puts together what comes."""
    operation = OPERATION.get()
    if operation is not None and operation.storage_start_ns is None:
        operation.storage_start_ns = monotonic_ns()
    return operation


def stored(operation: Operation | None) -> None:
    """It is over; what a get did after the last reply is packing."""
    if operation is not None and operation.kind == GET and operation.unit_end_ns is not None:
        operation.pack_ns = monotonic_ns() - operation.unit_end_ns


def asking() -> Request | None:
    """A request to a storage unit begins; one that is made again is another. None for what lies within one,
    as where a queue hands it to a transport of its own: that is part of it.
    """
    operation = OPERATION.get()
    if operation is None or _ASKING.get() is operation:
        return None
    start_ns = monotonic_ns()
    if operation.unit_start_ns is None:
        operation.unit_start_ns = start_ns
        if operation.kind != GET and operation.storage_start_ns is not None:
            operation.select_ns = start_ns - operation.storage_start_ns
    operation.open_units += 1
    return operation, start_ns, operation.coded_ns, _ASKING.set(operation)


def asked(request: Request | None, unit: object) -> None:
    """It has been answered by the unit, or has failed."""
    if request is None:
        return
    operation, start_ns, coded_ns, inside = request
    _ASKING.reset(inside)
    end_ns = operation.unit_end_ns = monotonic_ns()
    operation.open_units -= 1
    # messages are made and read on the thread that waits: that time is a stage of its own
    operation.unit_ns = end_ns - (operation.unit_start_ns or start_ns) - operation.coded_ns
    operation.waited_for(str(unit), end_ns - start_ns - (operation.coded_ns - coded_ns))


def coding() -> int:
    """Within a request a message is made of values, or values of a message; 0 elsewhere."""
    operation = OPERATION.get()
    return 0 if operation is None or not operation.open_units else monotonic_ns()


def coded(start_ns: int, kind: int) -> None:
    """It is made (`Kind.PUT`) or read (`Kind.GET`)."""
    operation = OPERATION.get()
    if not start_ns or operation is None:
        return
    took_ns = monotonic_ns() - start_ns
    operation.coded_ns += took_ns
    if kind == GET == operation.kind:
        operation.decode_ns = (operation.decode_ns or 0) + took_ns
    elif kind != GET != operation.kind:
        operation.serialize_ns = (operation.serialize_ns or 0) + took_ns


def timed(start_ns: int, field: str) -> None:
    """Another stage is over: `notify_ns`, the controller is told what is there now; `tags_ns`, the samples'
    are stored; `pack_ns`, of a storage that says so itself.
    """
    if (operation := OPERATION.get()) is not None:
        setattr(operation, field, monotonic_ns() - start_ns)
