"""A job's items as a trace for Perfetto (https://ui.perfetto.dev) or chrome://tracing.

The format is the JSON array of Chrome's "Trace Event Format": times in microseconds, "X" a span, "C" a
counter, "i" an instant, "s" and "f" the ends of an arrow, "M" a name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from flagscale_perf.analysis.drawing import Drawing
from flagscale_perf.analysis.lanes import Laid, Lane, laid
from flagscale_perf.analysis.timeline import Counter, Drawn, Process
from flagscale_perf.report.numbered import Numbers, sort_index
from flagscale_perf.spine.units import printable

_NS_PER_US = 1000

Event = dict[str, Any]


def pieces(drawing: Drawing, items: Iterable[Drawn] | None = None) -> Iterator[bytes]:
    """What the file has, an event a line, made while it is read; of the drawing, or only of some of its
    items.
    """
    header = drawing.whole.lead.header
    facts = {"session": header.session_id} | {
        name: header.facts[name] for name in ("script", "device") if header.facts.get(name) is not None
    }
    known = {name: printable(str(value)) for name, value in facts.items()}
    head = json.dumps({"displayTimeUnit": "ms", "otherData": known})
    yield f'{head[:-1]}, "traceEvents": ['.encode()
    separator = "\n"
    events = _Events(drawing)
    for one in laid(drawing.items() if items is None else items):
        for event in events.of(one):
            yield (separator + json.dumps(event, allow_nan=False, default=str)).encode()
            separator = ",\n"
    yield b"\n]}\n"


class _Events:
    def __init__(self, drawing: Drawing) -> None:
        self._zero_ns, self._numbers = drawing.zero_ns, Numbers(drawing.processes)
        self._named: set[int] = set()

    def of(self, one: Laid | Counter) -> Iterator[Event]:
        if isinstance(one, Counter):
            yield from self._process(one.process)
            at = self._at(one.at_ns, self._numbers.of(one.process)[0], 0)
            yield {"ph": "C", "name": one.name, "args": {"value": one.value}} | at
        elif not one.is_end:
            yield from self._process(one.lane.track.process)
            yield from self._item(one)

    def _process(self, process: Process) -> Iterator[Event]:
        pid, is_new = self._numbers.of(process)
        if is_new:
            process = self._numbers.shown(process)
            yield _name("process", pid, 0, {"name": printable(process.name)})
            yield _name("process", pid, 0, {"sort_index": sort_index(process)}, "sort_index")

    def _item(self, one: Laid) -> Iterator[Event]:
        lane, item = one.lane, one.item
        pid, _ = self._numbers.of(lane.track.process)
        if lane.number not in self._named:
            self._named.add(lane.number)
            yield from _names(lane, pid)
        begin = self._at(item.begin_ns, pid, lane.number) | {"name": printable(item.name)}
        facts = dict(item.facts) if item.error is None else {**item.facts, "error": item.error}
        args = {"args": {name: _harmless(value) for name, value in facts.items()}}
        if item.end_ns == item.begin_ns:
            yield begin | {"ph": "i", "s": "t"} | args
        else:
            yield begin | {"ph": "X", "dur": (item.end_ns - item.begin_ns) / _NS_PER_US} | args
        for end in item.ends:
            flow = {"name": printable(end.name), "cat": "flow", "id": f"0x{end.key:x}"}
            side = {"ph": "s"} if end.is_source else {"ph": "f", "bp": "e"}
            yield self._at(end.at_ns, pid, lane.number) | flow | side

    def _at(self, at_ns: int, pid: int, tid: int) -> Event:
        return {"pid": pid, "tid": tid, "ts": (at_ns - self._zero_ns) / _NS_PER_US}


def _names(lane: Lane, pid: int) -> Iterator[Event]:
    yield _name("thread", pid, lane.number, {"name": printable(lane.track.name)})
    yield _name("thread", pid, lane.number, {"sort_index": lane.order}, "sort_index")


def _name(of: str, pid: int, tid: int, args: Event, what: str = "name") -> Event:
    return {"ph": "M", "name": f"{of}_{what}", "pid": pid, "tid": tid, "args": args}


def _harmless(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value
