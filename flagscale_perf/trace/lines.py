"""Log lines from records: eight `[TQ-TRACE]` lines for a call, two `[TQ-DETAIL]` lines for an operation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

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


_Stage = tuple[str, int, str]  # its name, when it is, and the fields before its timestamp


class Lines:
    """Makes the lines of one process's records, without line ends.

    Attributes:
        names: what the process's numbers stand for, as far as that has been recorded.
    """

    def __init__(
        self, anchor: Anchor, pid: int | None = None, names: Mapping[int, str] | None = None
    ) -> None:
        self.names = dict(names or {})
        self._anchor = anchor
        self._process = "" if pid is None else f" | pid={pid}"

    def of(self, record: Record, unsized: UnsizedRecord | None = None) -> list[str]:
        """The record's lines; none for a record of another type. `unsized` came before it, if its bytes are
        not all known.
        """
        match record:
            case CallRecord():
                return self._lines(self._call(record), self._stages(record), self._numbered(record))
            case OperationRecord():
                name, fields = Kind(record.operation).name, self._moved(record, unsized)
                tail = self._numbered(record)
            case WaitRecord():
                name, fields, tail = "WAIT", self._waited(record), self._process
            case _:
                return []
        end_ns, took = record.start_ns + record.total_ns, f"duration={_seconds(record.total_ns)} | "
        stages = [("START", record.start_ns, ""), ("END", end_ns, took + fields)]
        return self._lines(self._detail(record, name), stages, tail + self._partition(record))

    def begun(self, begun: Sequence[StartRecord]) -> list[str]:
        """The first lines of an operation or a call in progress, as far as what has begun tells: those that
        `of` makes of it later, but for its number and its step, which it has at its end.
        """
        first = begun[0]
        if first.begun in _OF_CLIENTS:
            head, tail = self._detail(first, Begun(first.begun).name), self._process + self._partition(first)
            return self._lines(head, [("START", first.start_ns, "")], tail)
        stages = [("FUNCTION_START", first.start_ns, "")]
        for before, one in zip((None, *begun), begun, strict=False):
            if before is not None:
                duration = f"duration={_seconds(one.at_ns - before.at_ns)} | "
                stages.append((f"{_STAGES[Begun(before.begun)]}_END", one.at_ns, duration))
            stages.append((f"{_STAGES[Begun(one.begun)]}_START", one.at_ns, ""))
        return self._lines(self._call(first), stages, self._process)

    def _lines(self, head: str, stages: Iterable[_Stage], tail: str) -> list[str]:
        return [f"{head}{stage} | {fields}{self._timestamp(at_ns)}{tail}" for stage, at_ns, fields in stages]

    def _call(self, record: CallRecord | StartRecord) -> str:
        return f"{TRACE_MARK} trace_id={_trace_id(record)} | func={self._name(record.function)} | stage="

    def _detail(self, record: OperationRecord | WaitRecord | StartRecord, name: str) -> str:
        return f"{DETAIL_MARK} trace_id={_trace_id(record)} | stage=TQ_CLIENT_{name}_"

    def _stages(self, call: CallRecord) -> Iterator[_Stage]:
        """In order; every stage that began also has its end."""
        at_ns = call.start_ns
        yield "FUNCTION_START", at_ns, ""
        parts = (("get", call.get_ns), ("compute", call.compute_ns), ("put", call.put_ns))
        begun = [(name.upper(), took_ns) for name, took_ns in parts if took_ns is not None]
        for name, took_ns in begun:
            yield f"{name}_START", at_ns, ""
            at_ns += took_ns
            failed = "status=error | " if call.error and name == begun[-1][0] else ""
            yield f"{name}_END", at_ns, f"duration={_seconds(took_ns)} | {failed}"
        whole_ns = call.total_ns
        ratios = [
            f"{name}_ratio={100 * (took_ns or 0) / whole_ns if whole_ns else 0:.2f}% | "
            for name, took_ns in parts
        ]
        fields = f"total_duration={_seconds(whole_ns)} | {''.join(ratios)}{self._error(call)}"
        yield "FUNCTION_END", call.start_ns + whole_ns, fields

    def _moved(self, operation: OperationRecord, unsized: UnsizedRecord | None) -> str:
        size = operation.size_bytes if unsized is None else unsized.known_bytes
        fields = ""
        if size is not None and operation.total_ns:
            fields = f"throughput_mbps={size / MIB * NS_PER_S / operation.total_ns:.2f} | "
        fields += f"{self._error(operation)}batch_size={operation.rows} | fields={operation.fields} | "
        if size is not None:
            fields += f"data_size_mb={size / MIB:.6f} | "
        if unsized is not None:
            fields += f"unsized={','.join(map(self._name, unsized.fields))} | "
        return fields

    def _waited(self, wait: WaitRecord) -> str:
        wanted = "" if wait.wanted is None else f"wanted={wait.wanted} | "
        task = f"task={self._name(wait.task)} | " if wait.task else ""
        return f"{self._error(wait)}batch_size={wait.rows} | {wanted}{task}"

    def _name(self, number: int) -> str:
        return escaped(self.names.get(number, "")) or NOT_AVAILABLE

    def _error(self, record: CallRecord | OperationRecord | WaitRecord) -> str:
        return f"status=error | error={self._name(record.error)} | " if record.error else ""

    def _partition(self, record: OperationRecord | WaitRecord | StartRecord) -> str:
        return f" | partition={self._name(record.partition)}"

    def _numbered(self, record: CallRecord | OperationRecord) -> str:
        """Process and number of this record, and how many it stands for."""
        weight = "" if record.weight_milli == ONE else f" | weight={record.weight_milli / ONE:g}"
        step = "" if record.step is None else f" | step={record.step}"
        return f"{self._process} | number={record.number}{weight}{step}"

    def _timestamp(self, at_ns: int) -> str:
        """Unix time, so that processes and machines can be compared."""
        wall_us = self._anchor.wall_of(at_ns) // 1000
        return f"timestamp={wall_us // 1_000_000}.{wall_us % 1_000_000:06d}"


def escaped(text: str) -> str:
    """The text as the value of a field: nothing in it ends the field or the line, is interpreted by a
    terminal, or can be mistaken for another line or for Ray's note about lines that it left out.
    """
    value = printable(text).replace("|", "\\x7c")
    for mark in _MARKS:
        value = value.replace(mark, f"\\x5b{mark[1:]}")
    return value


def _trace_id(record: CallRecord | OperationRecord | WaitRecord | StartRecord) -> str:
    return escaped(record.trace_id) or NOT_AVAILABLE


def _seconds(took_ns: int) -> str:
    return f"{took_ns / NS_PER_S:.6f}s"
