"""The units of comparison of a session: its layers, or its calls if there are no layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from flagscale_perf.analysis.compare.driver import MAX_UNITS, Unit, warm
from flagscale_perf.analysis.session import Session
from flagscale_perf.rpc.analysis.columns import call_at, calls_in
from flagscale_perf.rpc.analysis.layers import FIRST, methods_of_a_layer
from flagscale_perf.rpc.analysis.source import Source, open_source
from flagscale_perf.rpc.figures import MIB, method_name
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.rpc.stages import ALL_STAGES, stage_times

LAYER, CALL = "layer", "call"
STAGE, METHOD = "stage ", "method "  # begin the names of parts
OUTSIDE = "calls outside of layers"
WARM = "at the start"
BEYOND = f"beyond the first {MAX_UNITS}"


@dataclass(frozen=True)
class SessionUnits:
    """One session.

    Attributes:
        source: of its calls, which have been read.
        kind: `LAYER` or `CALL`.
        units: those to compare, in order.
        left_out: how many are not, by the reason.
    """

    source: Source
    kind: str
    units: list[Unit]
    left_out: dict[str, int]


def read_units(session: Session, warmup: int) -> SessionUnits:
    """Raises PerfError if it cannot be read or has too little to compare."""
    source = open_source(session)
    pattern = methods_of_a_layer(_first_calls(source))
    units, left_out = _units(source, pattern)
    kind = LAYER if pattern else CALL
    first = warm(session, len(units), warmup, f"{kind}s to compare")
    if first:
        left_out[f"{kind}s {WARM}"] = first
    return SessionUnits(source, kind, units[first:], left_out)


def _first_calls(source: Source) -> list[CallRecord]:
    found: list[CallRecord] = []
    for columns in source.read(found.clear):
        found += calls_in(columns, 0, FIRST - len(found))
    return found


def _calls(source: Source, begin: Callable[[], None]) -> Iterator[CallRecord]:
    for columns in source.read(begin):
        for place in range(len(columns["number"])):
            yield call_at(columns, place)


def _units(source: Source, pattern: Sequence[str]) -> tuple[list[Unit], dict[str, int]]:
    """The units, in bounded memory, of the last session if a log has several; and how many it leaves out."""
    made, held, out = list[Unit](), list[CallRecord](), Counter[str]()

    def begin() -> None:
        made.clear()
        held.clear()
        out.clear()

    for call in _calls(source, begin):
        held.append(call)
        if pattern and not _begins(pattern, held):
            while held and not _begins(pattern, held):
                held.pop(0)
                out[OUTSIDE] += 1
        if len(held) == (len(pattern) or 1):
            if len(made) < MAX_UNITS:
                made.append(_unit(held))
            else:
                out[BEYOND] += 1
            held.clear()
    if held:
        out[OUTSIDE] += len(held)
    return made, dict(out)


def _begins(pattern: Sequence[str], calls: Sequence[CallRecord]) -> bool:
    return all(call.method == method for call, method in zip(calls, pattern, strict=False))


def _unit(calls: Sequence[CallRecord]) -> Unit:
    times = zip(ALL_STAGES, zip(*map(stage_times, calls), strict=True), strict=True)
    parts = {STAGE + stage.name: None if None in each else sum(filter(None, each)) for stage, each in times}
    methods: Counter[str] = Counter()
    for call in calls:
        methods[METHOD + method_name(call.method)] += call.total_ns
    moved = sum(call.moved_bytes for call in calls)
    amounts = {"calls": len(calls), "moved_mib": moved / MIB}
    return Unit(calls[0].number, methods.total(), {**parts, **methods}, amounts)
