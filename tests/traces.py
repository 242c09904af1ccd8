"""Traces read back: Chrome's JSON, and Perfetto's protobuf by its own package; and what holds of each."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Slice:
    """A span or a moment of a row."""

    process: str
    row: str
    lane: int
    name: str
    begin_ns: int
    end_ns: int
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class Trace:
    """What a trace says. Arrows: key, and which slice is at each of its ends."""

    processes: list[str] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    counters: list[tuple[str, str, int, float]] = field(default_factory=list)
    sources: dict[int, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    targets: dict[int, list[Slice]] = field(default_factory=lambda: defaultdict(list))

    def of(self, process: str, row: str) -> list[Slice]:
        return [one for one in self.slices if one.process == process and one.row == row]

    @property
    def arrows(self) -> list[tuple[Slice, Slice]]:
        return [(self.sources[key][0], self.targets[key][0]) for key in sorted(self.sources)]


def check(trace: Trace) -> None:
    """Asserts that every process is named once, nothing takes less than no time, slices of a lane lie beside
    or inside one another, and each arrow has both ends, of which the first is before the second.
    """
    assert len(trace.processes) == len(set(trace.processes))
    lanes = defaultdict(list)
    for one in trace.slices:
        assert one.end_ns >= one.begin_ns >= 0
        lanes[one.lane].append(one)
    for lane in lanes.values():
        opened: list[int] = []
        for one in sorted(lane, key=lambda each: (each.begin_ns, -each.end_ns)):
            while opened and opened[-1] <= one.begin_ns:
                opened.pop()
            assert not opened or one.end_ns <= opened[-1], one
            opened.append(one.end_ns)
    assert trace.sources.keys() == trace.targets.keys()
    for source, target in trace.arrows:
        assert source.begin_ns <= target.end_ns
    assert all(len(found) == 1 for ends in (trace.sources, trace.targets) for found in ends.values())


def of_json(content: bytes | str) -> Trace:
    """Of Chrome's JSON."""
    trace, names, rows = Trace(), dict[int, str](), dict[tuple[int, int], str]()
    events = json.loads(content)["traceEvents"]
    for event in events:
        if event["ph"] == "M" and event["name"] == "process_name":
            trace.processes.append(event["args"]["name"])
            names[event["pid"]] = event["args"]["name"]
        if event["ph"] == "M" and event["name"] == "thread_name":
            rows[event["pid"], event["tid"]] = event["args"]["name"]
    for event in events:
        begin_ns = round(event.get("ts", 0) * 1000)
        place = event["pid"], event["tid"]
        if event["ph"] in "Xi":
            end_ns = begin_ns + round(event.get("dur", 0) * 1000)
            trace.slices.append(
                Slice(names[place[0]], rows[place], place[1], event["name"], begin_ns, end_ns, event["args"])
            )
        elif event["ph"] == "C":
            trace.counters.append((names[place[0]], event["name"], begin_ns, event["args"]["value"]))
        elif event["ph"] in "sf":
            ends = trace.sources if event["ph"] == "s" else trace.targets
            ends[int(event["id"], 16)].append(trace.slices[-1])
    return trace


def of_protobuf(content: bytes) -> Trace:
    """Of Perfetto's protobuf, as its own reader takes it: an end closes what was opened last in its track."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Decoded

    reader = _Reader()
    for packet in Decoded.FromString(content).packet:
        reader.add(packet)
    assert not any(reader.opened.values())
    return reader.trace


class _Reader:
    def __init__(self) -> None:
        self.trace = Trace()
        self.opened: dict[int, list[Slice]] = defaultdict(list)
        self._tables: dict[tuple[str, bool], dict[int, str]] = defaultdict(dict)
        self._tracks: dict[int, Any] = {}

    def add(self, packet: Any) -> None:
        for _, table in packet.interned_data.ListFields():
            for entry in table:
                text = entry.str.decode() if hasattr(entry, "str") else entry.name
                self._tables[type(entry).__name__, hasattr(entry, "str")][entry.iid] = text
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in self._tracks
            self._tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            if packet.track_descriptor.HasField("process"):
                self.trace.processes.append(packet.track_descriptor.process.process_name)
        if packet.HasField("track_event"):
            self._event(packet.track_event, packet.timestamp)

    def _event(self, event: Any, at_ns: int) -> None:
        track = self._tracks[event.track_uuid]
        process = self._tracks[track.parent_uuid].process.process_name
        if event.type == event.TYPE_COUNTER:
            value = event.counter_value if event.HasField("counter_value") else event.double_counter_value
            self.trace.counters.append((process, track.name, at_ns, value))
            return
        opened = self.opened[event.track_uuid]
        if event.type == event.TYPE_SLICE_END:
            one = opened.pop()
            one.end_ns = at_ns
        else:
            name = self._tables["EventName", False][event.name_iid] if event.name_iid else event.name
            facts = dict(_fact(note, self._tables) for note in event.debug_annotations)
            one = Slice(process, track.name, event.track_uuid, name, at_ns, at_ns, facts)
            self.trace.slices.append(one)
            opened += [one] * (event.type == event.TYPE_SLICE_BEGIN)
        for key in event.flow_ids:
            self.trace.sources[key].append(one)
        for key in event.terminating_flow_ids:
            self.trace.targets[key].append(one)


def _fact(note: Any, tables: Any) -> tuple[str, Any]:
    name = tables["DebugAnnotationName", False][note.name_iid]
    kind = note.WhichOneof("value")
    value = getattr(note, kind)
    return name, tables["InternedString", True][value] if kind == "string_value_iid" else value


def drawing_of(header: Any, zero_ns: int | None = None) -> Any:
    """As much of a drawing as a form needs that is given its items."""
    from types import SimpleNamespace

    whole = SimpleNamespace(lead=SimpleNamespace(header=header))
    start = header.start_mono_ns if zero_ns is None else zero_ns
    wall_ns = header.start_wall_ns + start - header.start_mono_ns
    return SimpleNamespace(whole=whole, zero_ns=start, wall_ns=wall_ns, processes={})


class Recorded(list[Any]):
    """Records as a session that is read once."""

    def __init__(self, header: Any, *records: Any) -> None:
        super().__init__(records)
        self.header = header
