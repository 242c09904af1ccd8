"""The units of comparison of a session: its layers, or its calls if there are no layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.rpc.analysis.columns import call_at
from flagscale_perf.rpc.analysis.layers import methods_of_a_layer
from flagscale_perf.rpc.analysis.source import Source, open_source
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.rpc.stages import stage_times
from flagscale_perf.spine.errors import PerfError

LAYER, CALL = "layer", "call"
MIN_UNITS, MAX_UNITS = 8, 4096
WARMUP_SHARE = 4  # at most every fourth unit is left out as warm-up
FIRST = 1024  # calls searched for the pattern
OUTSIDE = "calls outside of layers"
WARM = "at the start"
BEYOND = f"beyond the first {MAX_UNITS}"


@dataclass(frozen=True)
class Unit:
    """A layer's calls, or one call. Times in nanoseconds.

    Attributes:
        number: of its first call.
        calls: how many.
        total_ns: of all of them.
        stages_ns: the same by `ALL_STAGES`; None for what not every call tells.
        methods_ns: the same by method.
        moved_bytes: sent and received.
    """

    number: int
    calls: int
    total_ns: int
    stages_ns: tuple[int | None, ...]
    methods_ns: dict[str, int]
    moved_bytes: int


@dataclass(frozen=True)
class SessionUnits:
    """One session.

    Attributes:
        path: of its file.
        title: of the session.
        facts: of it.
        kind: `LAYER` or `CALL`.
        units: those to compare, in order.
        left_out: how many are not, by the reason.
        skipped_lines: lines of the file that could not be read.
    """

    path: Path
    title: str
    facts: RpcFacts
    kind: str
    units: list[Unit]
    left_out: dict[str, int]
    skipped_lines: int


def read_units(path: Path, warmup: int) -> SessionUnits:
    """Raises PerfError if the file is not a session or has too little to compare."""
    source = open_source(open_session(path))
    pattern = methods_of_a_layer([*islice(_calls(source), FIRST)])
    left_out: Counter[str] = Counter()
    units = list(_units(_calls(source), pattern, left_out))
    kind = LAYER if pattern else CALL
    first = min(warmup, len(units) // WARMUP_SHARE)
    if len(units) - first < MIN_UNITS:
        raise PerfError(
            f"{str(path)!r} has {len(units)} {kind}s to compare; {MIN_UNITS + first} are needed: record a"
            " longer run"
        )
    if first:
        left_out[f"{kind}s {WARM}"] = first
    reading = source.reading()
    return SessionUnits(
        path, source.title(), source.facts(), kind, units[first:], dict(left_out), reading.skipped
    )


def _calls(source: Source) -> Iterator[CallRecord]:
    for columns in source.read(lambda: None):
        for place in range(len(columns["number"])):
            yield call_at(columns, place)


def _units(calls: Iterator[CallRecord], pattern: Sequence[str], left_out: Counter[str]) -> Iterator[Unit]:
    """The units, in bounded memory; counts what it leaves out."""
    made, held = 0, []
    for call in calls:
        held.append(call)
        if pattern and not _begins(pattern, held):
            while held and not _begins(pattern, held):
                held.pop(0)
                left_out[OUTSIDE] += 1
        if len(held) == (len(pattern) or 1):
            made += 1
            if made <= MAX_UNITS:
                yield _unit(held)
            else:
                left_out[BEYOND] += 1
            held = []
    if held:
        left_out[OUTSIDE] += len(held)


def _begins(pattern: Sequence[str], calls: Sequence[CallRecord]) -> bool:
    return all(call.method == method for call, method in zip(calls, pattern, strict=False))


def _unit(calls: Sequence[CallRecord]) -> Unit:
    stages = [None if None in each else sum(each) for each in zip(*map(stage_times, calls), strict=True)]
    methods: Counter[str] = Counter()
    for call in calls:
        methods[call.method] += call.total_ns
    moved = sum(call.sent_bytes + call.received_bytes for call in calls)
    total = sum(call.total_ns for call in calls)
    return Unit(calls[0].number, len(calls), total, tuple(stages), dict(methods), moved)
