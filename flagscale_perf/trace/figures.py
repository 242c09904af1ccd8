"""The figures of an operation: the table from which CSV, reports and docs are generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.figures import FINE_MILLISECONDS, PLAIN, Figure, Table, Unit, Value, start_figure
from flagscale_perf.spine.session import Starts
from flagscale_perf.trace.records import ONE, Kind, OperationRecord

MIB = 1 << 20  # what the logs call MB
_MIB = Unit("MiB", MIB, 3)
_MIB_PER_S = Unit("MiB/s", MIB, 2)

Operation: TypeAlias = Figure[OperationRecord, Starts]

KINDS = {kind.value: kind.name.lower() for kind in Kind}
ONE_OF = {Kind.PUT: "a put", Kind.GET: "a get", Kind.UPDATE: "an update"}


class Stage(NamedTuple):
    """A stage of an operation; its time is the record's field of this name with `_ns` behind it.

    Attributes:
        key: its name.
        colour: in pictures.
        meaning: what happens in it.
    """

    key: str
    colour: str
    meaning: str


STAGES = (  # in their order
    Stage("select", "sky", "put: laying the fields out for the storage units"),
    Stage("serialize", "yellow", "put: making messages of them"),
    Stage("unit", "blue", "from the first request to a storage unit until the last reply"),
    Stage("notify", "orange", "put: telling the controller what is there now"),
    Stage("tags", "red", "put: storing the samples' tags there"),
    Stage("decode", "green", "get: arrays of the replies"),
    Stage("pack", "sky", "get: one batch of these"),
)
OTHER = "other"  # what the stages leave of the whole


def throughput(operation: OperationRecord) -> float | None:
    """Bytes per second; None where not all bytes are known, or it took no time."""
    if operation.size_bytes is None or not operation.total_ns:
        return None
    return operation.size_bytes * NS_PER_S / operation.total_ns


def stages_ns(operation: OperationRecord) -> dict[str, int]:
    """Nanoseconds by stage, of those that were measured."""
    found = {stage.key: getattr(operation, f"{stage.key}_ns") for stage in STAGES}
    return {key: took_ns for key, took_ns in found.items() if took_ns is not None}


def other_ns(operation: OperationRecord) -> int:
    """The time outside of the stages."""
    return operation.total_ns - sum(stages_ns(operation).values())


def _stage(key: str, meaning: str) -> Operation:
    name = f"{key}_ns"
    return Figure(f"{key}_ms", key, FINE_MILLISECONDS, lambda operation, _: getattr(operation, name), meaning)


def _whole(key: str, label: str, value: Callable[[OperationRecord], Value], meaning: str) -> Operation:
    return Figure(key, label, PLAIN, lambda operation, _: value(operation), meaning)


OPERATIONS = Table(
    record=OperationRecord,
    step="number",
    time="",
    context=Starts,
    figures=(
        _whole("process", "process", lambda operation: operation.process, "number in the session"),
        _whole("number", "number", lambda operation: operation.number, "of the process, from 1"),
        _whole("kind", "kind", lambda operation: KINDS.get(operation.operation), "put, get or update"),
        start_figure("start"),
        Figure(
            "total_ms",
            "total",
            FINE_MILLISECONDS,
            lambda operation, _: operation.total_ns,
            "until the result",
        ),
        *(_stage(stage.key, stage.meaning) for stage in STAGES),
        Figure(
            "other_ms",
            "other",
            FINE_MILLISECONDS,
            lambda operation, _: other_ns(operation),
            "the client's other work: total less all stages",
        ),
        Figure(
            "size_mb",
            "size",
            _MIB,
            lambda operation, _: operation.size_bytes,
            "bytes of the samples' values alone / 1024²",
        ),
        Figure(
            "throughput_mb_per_s",
            "throughput",
            _MIB_PER_S,
            lambda operation, _: throughput(operation),
            "size / total",
        ),
        _whole("rows", "rows", lambda operation: operation.rows, "samples"),
        _whole("fields", "fields", lambda operation: operation.fields, "of a sample"),
        _whole("call", "call", lambda operation: operation.call or None, "number of the call it was made in"),
        _whole(
            "weight",
            "weight",
            lambda operation: operation.weight_milli / ONE,
            "how many operations it stands for",
        ),
        _whole("step", "step", lambda operation: operation.step, "of the training"),
        _whole("trace_id", "trace", lambda operation: operation.trace_id or None, "of the batch"),
    ),
)
