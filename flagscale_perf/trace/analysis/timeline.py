"""Calls and operations on a timeline, with arrows from each put to the gets of its samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import Arrow, Item, Name, Span, Timeline, Track
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.trace.analysis.lineage import join
from flagscale_perf.trace.analysis.source import RunReader, Traces
from flagscale_perf.trace.analysis.transfers import Transfers
from flagscale_perf.trace.figures import stages_ns
from flagscale_perf.trace.records import (
    KINDS,
    CallRecord,
    ClearRecord,
    FieldsRecord,
    KeysRecord,
    Kind,
    OperationRecord,
    RowsRecord,
    WaitRecord,
)

_FIRST = 100  # process of the trace of the first one
_CALLS, _OPERATIONS = 1, 100  # their first threads
MOST_LANES = 32  # of calls or operations of one process at the same time; others are drawn apart
MOST_ARROWS = 200_000
_DRAWN = (
    *(RunHeader, CallRecord, OperationRecord, ClearRecord, WaitRecord),
    *(ProcessRecord, NameRecord, RowsRecord, FieldsRecord, KeysRecord),
)


def timeline(session: Session) -> Timeline:
    """The timeline of a session."""
    drawn = _Drawn(session)
    own = dict.fromkeys(_DRAWN, drawn.items)
    return Timeline(session.header, own, rest=drawn.arrows)


class _Drawn:
    def __init__(self, session: Session) -> None:
        self._traces = Traces("", "", transfers=Transfers())
        self._reader = RunReader(self._traces, session.course)
        self._ends: dict[tuple[int, int], list[int]] = {}  # of the last span in each lane
        self._tracks: list[Track] = []  # of the transfers
        self._last = Track(_FIRST, 0)
        self._cleared: dict[int, int] = {}  # start of each process's last clear

    def items(self, record: Any) -> Iterator[Item]:
        kept = self._traces.transfers
        before = len(kept.transfers) if kept is not None else 0
        self._reader.add(record)
        match record:
            case ProcessRecord() if record.end is None:
                track = Track(_FIRST + record.number, 0)
                yield Name(track, f"{record.title} {record.pid}", is_process=True)
            case CallRecord():
                yield from self._call(record)
            case OperationRecord() if record.operation in KINDS:
                yield from self._operation(record)
                if kept is not None and len(kept.transfers) > before:
                    self._tracks.append(self._last)
            case ClearRecord():
                yield from self._clear(record)
            case WaitRecord():
                yield from self._wait(record)

    def _call(self, call: CallRecord) -> Iterator[Item]:
        name = self._reader.name(call.process, call.function)
        stages = (("get", call.get_ns), ("compute", call.compute_ns), ("put", call.put_ns))
        args = {
            "number": call.number,
            "rows": call.rows,
            "trace_id": call.trace_id or None,
            "error": self._reader.name(call.process, call.error) or None,
        }
        yield from self._span(call, (_CALLS, "calls"), name, args, stages)

    def _operation(self, one: OperationRecord) -> Iterator[Item]:
        args = {
            "number": one.number,
            "partition": self._reader.name(one.process, one.partition),
            "rows": one.rows,
            "fields": one.fields,
            "size_bytes": one.size_bytes,
            "slowest_unit": self._reader.name(one.process, one.slowest_unit or 0) or None,
            "error": self._reader.name(one.process, one.error) or None,
            "trace_id": one.trace_id or None,
        }
        yield from self._span(
            one,
            (_OPERATIONS, "operations"),
            Kind(one.operation).name.lower(),
            args,
            tuple(stages_ns(one).items()),
        )

    def _clear(self, one: ClearRecord) -> Iterator[Item]:
        """One span, however many records the clear has."""
        if self._cleared.get(one.process) == one.start_ns:
            return
        self._cleared[one.process] = one.start_ns
        args = {
            "partition": self._reader.name(one.process, one.partition),
            "error": self._reader.name(one.process, one.error) or None,
        }
        yield from self._span(one, (_OPERATIONS, "operations"), "clear", args, ())

    def _wait(self, one: WaitRecord) -> Iterator[Item]:
        task = self._reader.name(one.process, one.task) or None
        args = {
            "partition": self._reader.name(one.process, one.partition),
            "task": task,
            "wanted": one.wanted,
            "rows": one.rows,
            "error": self._reader.name(one.process, one.error) or None,
        }
        name = "samples" if one.rows else "too few samples"
        yield from self._span(one, (_OPERATIONS, "operations"), name, args, ())

    def _span(
        self,
        record: CallRecord | OperationRecord | ClearRecord | WaitRecord,
        group: tuple[int, str],
        name: str,
        args: Mapping[str, object],
        stages: tuple[tuple[str, int | None], ...],
    ) -> Iterator[Item]:
        """The record's span, with its stages end to end within it."""
        first, title = group
        end_ns = record.start_ns + record.total_ns
        lanes = self._ends.setdefault((record.process, first), [])
        lane = next((place for place, last in enumerate(lanes) if last <= record.start_ns), len(lanes))
        self._last = track = Track(_FIRST + record.process, first + min(lane, MOST_LANES))
        if lane == len(lanes) <= MOST_LANES:
            lanes.append(0)
            yield Name(track, title)
        if lane >= MOST_LANES:
            number = getattr(record, "number", record.start_ns)
            key = f"{record.process}/{number}"
            yield Span(track, name, record.start_ns, end_ns, args, "in flight", key)
            return
        lanes[lane] = end_ns
        yield Span(track, name, record.start_ns, end_ns, args)
        at_ns = record.start_ns
        for stage, took_ns in stages:
            if took_ns:
                until_ns = min(end_ns, at_ns + took_ns)
                yield Span(track, stage, at_ns, until_ns)
                at_ns = until_ns

    def arrows(self) -> Iterator[Item]:
        transfers = self._traces.transfers
        if transfers is None:
            return
        pairs: Counter[tuple[int, int]] = Counter()

        def count(get: int, put: int, samples: int) -> None:
            if len(pairs) < MOST_ARROWS:
                pairs[put, get] += samples

        join(transfers, count)
        for key, ((put, get), samples) in enumerate(pairs.items()):
            made, taken = transfers.transfers[put], transfers.transfers[get]
            # inside of the spans, so that the viewer finds them
            yield Arrow(
                f"{samples} samples",
                str(key),
                self._tracks[put],
                made.end_ns - 1,
                self._tracks[get],
                taken.start_ns + 1,
            )
