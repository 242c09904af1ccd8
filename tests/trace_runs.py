"""Queue traces whose every figure can be worked out by hand, as run files and as lines of a log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import SCHEMA_VERSION, Record, RunEnd, RunHeader
from flagscale_perf.trace.records import (
    ONE,
    CallRecord,
    ClearRecord,
    FieldsRecord,
    Kind,
    OperationRecord,
    RowsRecord,
    UnitsRecord,
    WaitRecord,
)

US, MS, SECOND = 1000, 1_000_000, 1_000_000_000
MIB = 1 << 20
START_WALL_NS = 1_706_524_200 * SECOND
JOB = "grpo"


def make_trace_header(session_id: str = "20240129_103000", **changed: Any) -> RunHeader:
    """Of a run that began on 2024-01-29 10:30:00 UTC, when the monotonic clock stood at 0."""
    facts = {"job": JOB, "versions": {"TransferQueue": "0.1.11"}, "machine": "node0"}
    fields: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "session_id": session_id,
        "start_wall_ns": START_WALL_NS,
        "start_mono_ns": 0,
        "facts": facts,
        "config": {},
        "instrument": "trace",
        "host": "node0",
        "boot_id": "5b0f2d5c-8a31-4d1b-9f0e-2f6f3a7c1e42",
        "pid": 1234,
    }
    return RunHeader(**fields | changed)


def make_operation(**changed: Any) -> OperationRecord:
    """A put of 64 rows x 4 fields, 1 MB (2^20), in 4 ms: 0.1 select, 0.2 serialize, 2 unit, 0.7 notify, 0.6
    tags, 0.4 other.
    """
    fields: dict[str, Any] = {
        "process": 1,
        "number": 1,
        "call": 0,
        "operation": int(Kind.PUT),
        "start_ns": 0,
        "total_ns": 4 * MS,
        "select_ns": 100 * US,
        "serialize_ns": 200 * US,
        "unit_ns": 2 * MS,
        "slowest_unit": None,
        "slowest_unit_ns": None,
        "notify_ns": 700 * US,
        "tags_ns": 600 * US,
        "decode_ns": None,
        "pack_ns": None,
        "size_bytes": MIB,
        "rows": 64,
        "fields": 4,
        "first_row": 0,
        "last_row": 63,
        "partition": 0,
        "error": 0,
        "weight_milli": ONE,
        "step": None,
        "trace_id": "",
        "field_set": None,
    }
    return OperationRecord(**fields | changed)


def make_get(**changed: Any) -> OperationRecord:
    """A get of the same that takes 6 ms: 4 unit, 1 decode, 0.8 pack, 0.2 other."""
    fields: dict[str, Any] = {
        "operation": int(Kind.GET),
        "total_ns": 6 * MS,
        "select_ns": None,
        "serialize_ns": None,
        "unit_ns": 4 * MS,
        "notify_ns": None,
        "tags_ns": None,
        "decode_ns": MS,
        "pack_ns": 800 * US,
    }
    return make_operation(**fields | changed)


def make_call(**changed: Any) -> CallRecord:
    """A call of 100 ms: 6 get, 90 compute, 4 put."""
    fields: dict[str, Any] = {
        "process": 1,
        "number": 1,
        "parent": 0,
        "start_ns": 0,
        "total_ns": 100 * MS,
        "get_ns": 6 * MS,
        "compute_ns": 90 * MS,
        "put_ns": 4 * MS,
        "rows": 64,
        "operations": 2,
        "operations_get_ns": 6 * MS,
        "operations_put_ns": 4 * MS,
        "get_bytes": MIB,
        "put_bytes": MIB,
        "function": 0,
        "error": 0,
        "weight_milli": ONE,
        "step": None,
        "trace_id": "",
    }
    return CallRecord(**fields | changed)


def make_wait(**changed: Any) -> WaitRecord:
    """A consumer that is told 4 samples in 1 ms."""
    fields: dict[str, Any] = {
        "process": 1,
        "call": 0,
        "start_ns": 0,
        "total_ns": MS,
        "partition": 0,
        "error": 0,
        "task": 0,
        "wanted": 4,
        "rows": 4,
        "trace_id": "",
    }
    return WaitRecord(**fields | changed)


class Job:
    """Processes that put and get samples, record by record."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._names: dict[tuple[int, str], int] = {}
        self._numbers: dict[int, int] = {}

    def process(self, title: str, pid: int) -> int:
        """A new one."""
        number = len(self._numbers) + 1
        self._numbers[number] = 0
        self.records.append(ProcessRecord(number, pid, title, 0, None, 0, None))
        return number

    def name(self, process: int, text: str) -> int:
        """Its number for a text."""
        known = self._names.get((process, text))
        if known is None:
            known = 1 + sum(owner == process for owner, _ in self._names)
            self._names[process, text] = known
            self.records.append(NameRecord(process, known, text))
        return known

    def put(self, process: int, at_ns: int, indexes: Sequence[int], **changed: Any) -> OperationRecord:
        """Of these indexes, done 2.7 ms after `at_ns` for others, and 4 ms after it altogether."""
        return self._operation(make_operation, process, at_ns, indexes, changed)

    def get(self, process: int, at_ns: int, indexes: Sequence[int], **changed: Any) -> OperationRecord:
        """Of these indexes."""
        return self._operation(make_get, process, at_ns, indexes, changed)

    def wait(self, process: int, task: str, at_ns: int, rows: int, **changed: Any) -> None:
        """A request for samples that is answered with so many."""
        named = {"task": self.name(process, task), "partition": self.name(process, "train")}
        self.records.append(make_wait(process=process, start_ns=at_ns, rows=rows, **named | changed))

    def call(self, process: int, function: str, at_ns: int, **changed: Any) -> CallRecord:
        """Ends now: what was put and got in it came before, with `call=job.next(process, 2)` or so."""
        error = self.name(process, str(changed.pop("error"))) if "error" in changed else 0
        made = make_call(
            process=process,
            function=self.name(process, function),
            start_ns=at_ns,
            error=error,
            **{"number": self._next(process)} | changed,
        )
        self.records.append(made)
        return made

    def clear(self, process: int, at_ns: int, ranges: Sequence[int] | None, **changed: int) -> None:
        """Of these first indexes and counts; None for the partition."""
        partition = self.name(process, "train")
        whole = int(ranges is None)
        made = ClearRecord(process, 0, at_ns, MS, partition, 0, whole, 0, tuple(ranges or ()))
        self.records.append(made._replace(**changed))

    def coming(self, process: int, operations: int) -> int:
        """The number of a call that ends after so many more operations."""
        return self._numbers[process] + operations + 1

    def _next(self, process: int) -> int:
        self._numbers[process] += 1
        return self._numbers[process]

    def _operation(
        self, make: Any, process: int, at_ns: int, rows: Sequence[int], changed: dict[str, Any]
    ) -> OperationRecord:
        partition = self.name(process, str(changed.pop("partition", "train")))
        error = self.name(process, str(changed.pop("error"))) if "error" in changed else 0
        if "names" in changed:
            names = changed.pop("names")
            changed |= {"fields": len(names), "field_set": self._field_set(process, names)}
        waits = changed.pop("waits", {})
        if waits:
            changed["slowest_unit"] = max(waits, key=lambda unit: waits[unit])
            changed["slowest_unit_ns"] = max(waits.values())
        waited = [part for unit, ns in waits.items() for part in (self.name(process, unit), ns)]
        if "slowest_unit" in changed:
            changed["slowest_unit"] = self.name(process, changed["slowest_unit"])
        number = self._next(process)
        if waited:
            self.records.append(UnitsRecord(process, number, tuple(waited)))
        first, last = min(rows), max(rows)
        if last - first + 1 != len(rows):
            self.records.append(RowsRecord(process, number, 0, tuple(_ranges(rows))))
        made: OperationRecord = make(
            **{
                "process": process,
                "number": number,
                "start_ns": at_ns,
                "rows": len(rows),
                "first_row": first,
                "last_row": last,
                "partition": partition,
                "error": error,
            }
            | changed
        )
        self.records.append(made)
        return made

    def _field_set(self, process: int, names: Sequence[str]) -> int:
        fields = tuple(self.name(process, name) for name in names)
        number = self.name(process, "\n".join(names))  # numbers of names and sets are one series
        self.records.append(FieldsRecord(process, number, fields))
        return number

    def write(self, directory: Path, header: RunHeader | None = None, end: str | None = "completed") -> Path:
        """The run file."""
        header = header or make_trace_header()
        path = directory / f"perf_records_{header.session_id}.jsonl"
        ends = [RunEnd(end, header.start_wall_ns + SECOND, 0, 0)] if end is not None else []
        path.write_bytes(b"".join(map(encode, [header, *self.records, *ends])))
        return path


def _ranges(rows: Iterable[int]) -> list[int]:
    made: list[int] = []
    for row in sorted(rows):
        if made and made[-2] + made[-1] == row:
            made[-1] += 1
        else:
            made += [row, 1]
    return made


def pipeline(steps: int = 10, rows: int = 64) -> Job:
    """Rollout puts, train gets: each step 200 ms; samples are there at 26.7 ms of a step and got at 50 ms.
    Indexes are used again after each step.
    """
    job = Job()
    rollout, train = job.process("Rollout", 101), job.process("Train", 102)
    indexes = range(rows)
    for step in range(steps):
        at_ns = step * 200 * MS
        call = job.coming(rollout, 1)
        job.put(rollout, at_ns + 24 * MS, indexes, call=call)
        job.call(rollout, "rollout", at_ns, total_ns=28 * MS, get_ns=0, compute_ns=24 * MS, put_ns=4 * MS)
        call = job.coming(train, 1)
        job.get(train, at_ns + 50 * MS, indexes, call=call)
        job.call(
            train, "train", at_ns + 50 * MS, total_ns=100 * MS, get_ns=6 * MS, compute_ns=94 * MS, put_ns=0
        )
    return job


def lines_of_call(
    function: str = "rollout",
    trace_id: str = "a1b2c3d4",
    times_ms: tuple[float, float, float] = (52.0, 800.0, 62.024),
    before: str = "",
    behind: str = "",
) -> list[str]:
    """The eight lines of a call."""
    total = sum(times_ms)
    lines = []
    for name, took in zip(("GET", "COMPUTE", "PUT"), times_ms, strict=True):
        lines += [f"{name}_START{behind}", f"{name}_END | duration={took / 1000:.6f}s{behind}"]
    shares = " | ".join(
        f"{name}_ratio={100 * took / total:.2f}%"
        for name, took in zip(("get", "compute", "put"), times_ms, strict=True)
    )
    ended = f"FUNCTION_END | total_duration={total / 1000:.6f}s | {shares}{behind}"
    head = f"{before}[TQ-TRACE] trace_id={trace_id} | func={function} | stage="
    return [head + line for line in (f"FUNCTION_START{behind}", *lines, ended)]


def lines_of_put(
    trace_id: str = "a1b2c3d4",
    took_ms: float = 60.0,
    speed: float = 253.33,
    before: str = "",
    behind: str = "",
    sizes: str = "",
) -> list[str]:
    """The two lines of a put; the second one has its sizes."""
    head = f"{before}[TQ-DETAIL] trace_id={trace_id} | stage=TQ_CLIENT_PUT_"
    fields = f"duration={took_ms / 1000:.6f}s | throughput_mbps={speed:.2f}"
    return [f"{head}START{behind}", f"{head}END | {fields}{sizes}{behind}"]
