"""A timeline as a trace for Perfetto (https://ui.perfetto.dev) or chrome://tracing.

The format is the JSON array of Chrome's "Trace Event Format": times in microseconds, "X" a span, "C" a
counter, "i" an instant, "b" and "e" the ends of a span that may overlap others, "s" and "f" those of an
arrow, "M" a name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from flagscale_perf.analysis.timeline import Arrow, Counter, Item, Moment, Name, Span, Track
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.units import printable

_NS_PER_US = 1000
_COUNTERS = Track(1, 0)

Event = dict[str, Any]


def trace_lines(header: RunHeader, items: Iterable[Item]) -> Iterator[str]:
    """The lines of the file, an event each, made while they are read."""
    facts = {
        "session": header.session_id,
        "script": header.facts.get("script"),
        "device": header.facts.get("device"),
    }
    yield (
        json.dumps(
            {
                "displayTimeUnit": "ms",
                "otherData": {key: printable(str(value)) for key, value in facts.items()},
            }
        )[:-1]
        + ', "traceEvents": ['
    )
    separator = "\n"
    for item in items:
        for event in _events(item, header.start_mono_ns):
            yield separator + json.dumps(event, allow_nan=False, default=str)
            separator = ",\n"
    yield "\n]}\n"


def _events(item: Item, zero_ns: int) -> Iterator[Event]:
    match item:
        case Name():
            kind = "process_name" if item.is_process else "thread_name"
            yield {"ph": "M", "name": kind} | _on(item.track) | {"args": {"name": printable(item.text)}}
        case Counter():
            yield {"ph": "C", "name": item.name, "args": {"value": item.value}} | _at(
                item.at_ns, zero_ns, _COUNTERS
            )
        case Moment():
            made = {"ph": "i", "s": "g", "name": printable(item.name), "args": _harmless(item.args)}
            yield made | _at(item.at_ns, zero_ns, _COUNTERS)
        case Arrow():
            common = {"name": printable(item.name), "cat": "flow", "id": item.key}
            yield _at(item.source_ns, zero_ns, item.source) | common | {"ph": "s"}
            yield _at(item.target_ns, zero_ns, item.target) | common | {"ph": "f", "bp": "e"}
        case Span():
            yield from _span(item, zero_ns)


def _span(span: Span, zero_ns: int) -> Iterator[Event]:
    name, args = {"name": printable(span.name)}, {"args": _harmless(span.args)}
    begin = _at(span.start_ns, zero_ns, span.track)
    if not span.category:
        yield begin | {"ph": "X"} | name | {"dur": (span.end_ns - span.start_ns) / _NS_PER_US} | args
        return
    common = name | {"cat": span.category, "id": span.key}
    yield begin | common | {"ph": "b"} | args
    yield _at(span.end_ns, zero_ns, span.track) | common | {"ph": "e"}


def _at(at_ns: int, zero_ns: int, track: Track) -> Event:
    return _on(track) | {"ts": (at_ns - zero_ns) / _NS_PER_US}


def _on(track: Track) -> Event:
    return {"pid": track.process, "tid": track.thread}


def _harmless(args: Any) -> Event:
    return {name: printable(value) if isinstance(value, str) else value for name, value in args.items()}
