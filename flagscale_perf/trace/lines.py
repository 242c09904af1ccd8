"""Log lines from records: eight `[TQ-TRACE]` lines for a call, two `[TQ-DETAIL]` lines for an operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.records import Record
from flagscale_perf.spine.units import printable
from flagscale_perf.trace.figures import MIB
from flagscale_perf.trace.records import (
    ONE,
    Begun,
    CallRecord,
    Kind,
    OperationRecord,
    StartRecord,
    UnsizedRecord,
    WaitRecord,
)

NOT_AVAILABLE = "N/A"
TRACE_MARK, DETAIL_MARK = "[TQ-TRACE]", "[TQ-DETAIL]"
_STAGES = {Begun.CALL: "GET", Begun.COMPUTE: "COMPUTE", Begun.CALL_PUT: "PUT"}
_OF_CLIENTS = (Begun.PUT, Begun.GET, Begun.UPDATE, Begun.WAIT)
_MARKS = ("[TQ-", "[repeated ")


def lines_of(
    record: Record,
    names: Mapping[int, str],
    anchor: Anchor,
    pid: int | None = None,
    unsized: UnsizedRecord | None = None,
) -> list[str]:
    """The record's lines without line ends; none for a record of another type. `names` and `pid` are those of
    the record's process; `unsized` came before it, if its bytes are not all known.
    """
    if isinstance(record, CallRecord):
        return list(_Call(record, names, anchor, pid).lines())
    if isinstance(record, OperationRecord):
        return _operation(record, names, anchor, pid, unsized)
    if isinstance(record, WaitRecord):
        return _wait(record, names, anchor, pid)
    return []


def lines_begun(
    begun: Sequence[StartRecord], names: Mapping[int, str], anchor: Anchor, pid: int | None = None
) -> list[str]:
    """The first lines of an operation or a call in progress, as far as what has begun tells: those that
    `lines_of` makes of it later, but for its number and its step, which it has at its end.
    """
    first = begun[0]
    tail = "" if pid is None else f" | pid={pid}"
    trace_id = escaped(first.trace_id) or NOT_AVAILABLE
    if first.begun in _OF_CLIENTS:
        partition = f" | partition={_name(names, first.partition)}"
        start = f"{DETAIL_MARK} trace_id={trace_id} | stage=TQ_CLIENT_{Begun(first.begun).name}_START"
        return [f"{start} | {_timestamp(anchor, first.start_ns)}{tail}{partition}"]
    head = f"{TRACE_MARK} trace_id={trace_id} | func={_name(names, first.function)} | stage="
    stages = [f"FUNCTION_START | {_timestamp(anchor, first.start_ns)}"]
    for before, one in zip((None, *begun), begun, strict=False):
        at = _timestamp(anchor, one.at_ns)
        if before is not None:
            duration = f"duration={_seconds(one.at_ns - before.at_ns)}"
            stages.append(f"{_STAGES[Begun(before.begun)]}_END | {duration} | {at}")
        stages.append(f"{_STAGES[Begun(one.begun)]}_START | {at}")
    return [f"{head}{stage}{tail}" for stage in stages]


def escaped(text: str) -> str:
    """The text as the value of a field: nothing in it ends the field or the line, is interpreted by a
    terminal, or can be mistaken for another line or for Ray's note about lines that it left out.
    """
    value = printable(text).replace("|", "\\x7c")
    for mark in _MARKS:
        value = value.replace(mark, f"\\x5b{mark[1:]}")
    return value


class _Call:
    def __init__(self, call: CallRecord, names: Mapping[int, str], anchor: Anchor, pid: int | None) -> None:
        self._call = call
        self._names = names
        self._anchor = anchor
        self._head = f"{TRACE_MARK} trace_id={_trace_id(call)} | func={_name(names, call.function)} | stage="
        self._tail = _tail(call, pid)

    def lines(self) -> Iterator[str]:
        """The lines in order; every stage that began also has its end."""
        call = self._call
        at_ns = call.start_ns
        yield self._line("FUNCTION_START", at_ns)
        stages = [("GET", call.get_ns), ("COMPUTE", call.compute_ns), ("PUT", call.put_ns)]
        begun = [(name, took_ns) for name, took_ns in stages if took_ns is not None]
        for name, took_ns in begun:
            yield self._line(f"{name}_START", at_ns)
            at_ns += took_ns
            failed = "status=error | " if call.error and name == begun[-1][0] else ""
            yield self._line(f"{name}_END", at_ns, f"duration={_seconds(took_ns)} | {failed}")
        yield self._line("FUNCTION_END", call.start_ns + call.total_ns, self._summary())

    def _summary(self) -> str:
        call = self._call
        ratios = [
            f"{name}_ratio={100 * (took_ns or 0) / call.total_ns if call.total_ns else 0:.2f}% | "
            for name, took_ns in (("get", call.get_ns), ("compute", call.compute_ns), ("put", call.put_ns))
        ]
        return f"total_duration={_seconds(call.total_ns)} | {''.join(ratios)}{_error(self._names, call)}"

    def _line(self, stage: str, at_ns: int, fields: str = "") -> str:
        return f"{self._head}{stage} | {fields}{_timestamp(self._anchor, at_ns)}{self._tail}"


def _operation(
    operation: OperationRecord,
    names: Mapping[int, str],
    anchor: Anchor,
    pid: int | None,
    unsized: UnsizedRecord | None,
) -> list[str]:
    kind = Kind(operation.operation).name
    head = f"{DETAIL_MARK} trace_id={_trace_id(operation)} | stage=TQ_CLIENT_{kind}_"
    tail = f"{_tail(operation, pid)} | partition={_name(names, operation.partition)}"
    size = operation.size_bytes if unsized is None else unsized.known_bytes
    total_ns = operation.total_ns
    fields = f"duration={_seconds(total_ns)} | "
    if size is not None and total_ns:
        fields += f"throughput_mbps={size / MIB * NS_PER_S / total_ns:.2f} | "
    fields += f"{_error(names, operation)}batch_size={operation.rows} | fields={operation.fields} | "
    if size is not None:
        fields += f"data_size_mb={size / MIB:.6f} | "
    if unsized is not None:
        fields += f"unsized={','.join(_name(names, field) for field in unsized.fields)} | "
    end_ns = operation.start_ns + total_ns
    return [
        f"{head}START | {_timestamp(anchor, operation.start_ns)}{tail}",
        f"{head}END | {fields}{_timestamp(anchor, end_ns)}{tail}",
    ]


def _wait(wait: WaitRecord, names: Mapping[int, str], anchor: Anchor, pid: int | None) -> list[str]:
    """Its first line is that of its begin alone."""
    head = f"{DETAIL_MARK} trace_id={_trace_id(wait)} | stage=TQ_CLIENT_WAIT_"
    process = "" if pid is None else f" | pid={pid}"
    tail = f"{process} | partition={_name(names, wait.partition)}"
    fields = f"duration={_seconds(wait.total_ns)} | {_error(names, wait)}batch_size={wait.rows} | "
    if wait.wanted is not None:
        fields += f"wanted={wait.wanted} | "
    if wait.task:
        fields += f"task={_name(names, wait.task)} | "
    return [
        f"{head}START | {_timestamp(anchor, wait.start_ns)}{tail}",
        f"{head}END | {fields}{_timestamp(anchor, wait.start_ns + wait.total_ns)}{tail}",
    ]


def _trace_id(record: CallRecord | OperationRecord | WaitRecord) -> str:
    return escaped(record.trace_id) or NOT_AVAILABLE


def _name(names: Mapping[int, str], number: int) -> str:
    return escaped(names.get(number, "")) or NOT_AVAILABLE


def _error(names: Mapping[int, str], record: CallRecord | OperationRecord | WaitRecord) -> str:
    return f"status=error | error={_name(names, record.error)} | " if record.error else ""


def _tail(record: CallRecord | OperationRecord, pid: int | None) -> str:
    """Number and process of this record, and how many it stands for."""
    process = "" if pid is None else f" | pid={pid}"
    weight = "" if record.weight_milli == ONE else f" | weight={record.weight_milli / ONE:g}"
    step = "" if record.step is None else f" | step={record.step}"
    return f"{process} | number={record.number}{weight}{step}"


def _timestamp(anchor: Anchor, at_ns: int) -> str:
    """Unix time, so that processes and machines can be compared."""
    wall_us = anchor.wall_of(at_ns) // 1000
    return f"timestamp={wall_us // 1_000_000}.{wall_us % 1_000_000:06d}"


def _seconds(took_ns: int) -> str:
    return f"{took_ns / NS_PER_S:.6f}s"
