"""A job's items as Perfetto's own protobuf, by its package: nanoseconds, arrow ids of 64 bits, names once.

Times count from the job's start. Snapshots of the clocks tell what that is on the machine's monotonic clock
and by the time of day, so that other traces can lie beside this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from flagscale_perf.analysis.drawing import Drawing
from flagscale_perf.analysis.lanes import Laid, Lane, laid
from flagscale_perf.analysis.timeline import Counter, Drawn, Item, Process
from flagscale_perf.report.numbered import Numbers, sort_index
from flagscale_perf.spine.packages import missing
from flagscale_perf.spine.units import printable

try:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
        BuiltinClock,
        Trace,
        TracePacket,
        TrackDescriptor,
        TrackEvent,
    )
except ImportError as error:
    raise missing(
        "perfetto", error, "a trace in Perfetto's protobuf", "write a name that ends in .json"
    ) from None

SEQUENCE = 1
OWN_CLOCK = 64  # of the sequence: nanoseconds since the job's start
_MOST = (1 << 63) - 1  # a damaged file may have any number
_BATCH = 256  # packets that are written at once
_MOST_NAMES = 50_000  # of a table; a long run has a name of its own for each step


def pieces(drawing: Drawing, items: Iterable[Drawn] | None = None) -> Iterator[bytes]:
    """What the file has, made while it is read; of the drawing, or only of some of its items."""
    packets = _Packets(drawing).all(laid(drawing.items() if items is None else items))
    while batch := [*islice(packets, _BATCH)]:
        yield Trace(packet=batch).SerializeToString()


class _Packets:
    def __init__(self, drawing: Drawing) -> None:
        self._drawing, self._zero_ns = drawing, drawing.zero_ns
        self._numbers = Numbers(drawing.processes)
        self._processes: dict[int, int] = {}  # track ids by pid
        self._lanes: dict[int, int] = {}
        self._counters: dict[tuple[int, str], int] = {}
        self._interned: dict[str, dict[str, int]] = {}
        self._ids = 0

    def all(self, laid: Iterable[Laid | Counter]) -> Iterator[TracePacket]:
        yield self._first()
        for one in laid:
            if isinstance(one, Counter):
                yield from self._counter(one)
            elif one.is_end:
                yield self._end(one)
            else:
                yield from self._begin(one)

    def _first(self) -> TracePacket:
        packet = TracePacket(
            trusted_packet_sequence_id=SEQUENCE,
            sequence_flags=TracePacket.SEQ_INCREMENTAL_STATE_CLEARED,
            first_packet_on_sequence=True,
        )
        packet.trace_packet_defaults.timestamp_clock_id = OWN_CLOCK
        packet.clock_snapshot.primary_trace_clock = BuiltinClock.BUILTIN_CLOCK_MONOTONIC
        clocks = {
            OWN_CLOCK: 0,
            BuiltinClock.BUILTIN_CLOCK_MONOTONIC: self._zero_ns,
            BuiltinClock.BUILTIN_CLOCK_REALTIME: self._drawing.wall_ns,
        }
        for clock, at_ns in clocks.items():
            packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=at_ns)
        return packet

    def _new(self, at_ns: int | None = None) -> TracePacket:
        packet = TracePacket(trusted_packet_sequence_id=SEQUENCE)
        if at_ns is not None and at_ns >= self._zero_ns:
            packet.timestamp = min(at_ns - self._zero_ns, _MOST)
        elif at_ns is not None:  # recorded after it was looked where everything begins
            packet.timestamp = max(0, at_ns)
            packet.timestamp_clock_id = BuiltinClock.BUILTIN_CLOCK_MONOTONIC
        return packet

    def _track(self, **fields: Any) -> tuple[int, TracePacket]:
        self._ids += 1
        packet = self._new()
        packet.track_descriptor.CopyFrom(TrackDescriptor(uuid=self._ids, **fields))
        return self._ids, packet

    def _process(self, process: Process) -> Iterator[TracePacket]:
        pid, is_new = self._numbers.of(process)
        if not is_new:
            return
        process = self._numbers.shown(process)
        self._processes[pid], packet = self._track(child_ordering=TrackDescriptor.EXPLICIT)
        own = packet.track_descriptor.process
        own.pid, own.process_name = pid, printable(process.name)
        own.legacy_sort_index = sort_index(process)
        yield packet

    def _lane(self, lane: Lane) -> Iterator[TracePacket]:
        if lane.number in self._lanes:
            return
        yield from self._process(lane.track.process)
        parent = self._processes[self._numbers.of(lane.track.process)[0]]
        self._lanes[lane.number], packet = self._track(
            parent_uuid=parent, name=printable(lane.track.name), sibling_order_rank=lane.order
        )
        yield packet

    def _counter(self, one: Counter) -> Iterator[TracePacket]:
        yield from self._process(one.process)
        pid, _ = self._numbers.of(one.process)
        if (pid, one.name) not in self._counters:
            number, packet = self._track(parent_uuid=self._processes[pid], name=printable(one.name))
            packet.track_descriptor.counter.SetInParent()
            self._counters[pid, one.name] = number
            yield packet
        packet = self._new(one.at_ns)
        event = packet.track_event
        event.type, event.track_uuid = TrackEvent.TYPE_COUNTER, self._counters[pid, one.name]
        if isinstance(one.value, int) and abs(one.value) <= _MOST:
            event.counter_value = one.value
        else:
            event.double_counter_value = one.value
        yield packet

    def _begin(self, one: Laid) -> Iterator[TracePacket]:
        yield from self._lane(one.lane)
        item = one.item
        packet = self._new(item.begin_ns)
        event = packet.track_event
        event.track_uuid = self._lanes[one.lane.number]
        is_moment = item.end_ns == item.begin_ns
        event.type = TrackEvent.TYPE_INSTANT if is_moment else TrackEvent.TYPE_SLICE_BEGIN
        number = 0 if item.step is not None else self._intern(packet, "event_names", item.name)
        if number:
            event.name_iid = number
        else:  # a step's name comes once, and the table has room for the others
            event.name = printable(item.name)
        for name, value in item.facts.items() if not one.lane.track.is_dense else ():
            self._annotate(packet, name, value)
        if item.error is not None:
            self._annotate(packet, "error", item.error)
        _flows(event, item, True, is_moment)
        yield packet

    def _end(self, one: Laid) -> TracePacket:
        packet = self._new(one.item.end_ns)
        event = packet.track_event
        event.type, event.track_uuid = TrackEvent.TYPE_SLICE_END, self._lanes[one.lane.number]
        _flows(event, one.item, False, True)
        return packet

    def _annotate(self, packet: TracePacket, name: str, value: Any) -> None:
        if value is None:
            return
        note = packet.track_event.debug_annotations.add()
        note.name_iid = self._intern(packet, "debug_annotation_names", name)
        match value:
            case bool():
                note.bool_value = value
            case int() if -(1 << 63) <= value < 1 << 63:
                note.int_value = value
            case float():
                note.double_value = value
            case _ if number := self._intern(packet, "debug_annotation_string_values", str(value)):
                note.string_value_iid = number
            case _:
                note.string_value = printable(str(value))

    def _intern(self, packet: TracePacket, table: str, text: str) -> int:
        """The number that the text has in the table; 0 where that is full."""
        known = self._interned.setdefault(table, {})
        found = known.get(text, 0)
        if not found and len(known) < _MOST_NAMES:
            found = known[text] = len(known) + 1
            entry = getattr(packet.interned_data, table).add(iid=found)
            if table == "debug_annotation_string_values":
                entry.str = printable(text).encode()
            else:
                entry.name = printable(text)
        return found


def _flows(event: TrackEvent, item: Item, is_begin: bool, is_end: bool) -> None:
    """An arrow begins at the beginning of its source, and ends at that of its target where this comes later;
    else at its target's end.
    """
    for end in item.ends:
        if is_end if not end.is_source and end.at_ns > item.begin_ns else is_begin:
            (event.flow_ids if end.is_source else event.terminating_flow_ids).append(end.key)
