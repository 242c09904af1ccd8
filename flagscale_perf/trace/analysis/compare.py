"""Compares runs round by round: the n-th call of every function, or the n-th operations if there are no
calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from flagscale_perf.analysis.compare.compare import CompareOptions, Comparison, Terms
from flagscale_perf.analysis.compare.driver import (
    MAX_UNITS,
    Compared,
    Unit,
    Units,
    mean_unit,
    used_parts,
    warm,
)
from flagscale_perf.analysis.session import Session
from flagscale_perf.trace.figures import MIB, other_ns, stages_ns
from flagscale_perf.trace.records import KINDS, CallRecord, Kind, OperationRecord

MOVED = "moved_mib"
TERMS = Terms(
    "round",
    MAX_UNITS,
    labels={"mean": ("mean, {unit}", 3), "p95": ("p95, {unit}", 3), MOVED: ("put and got, MiB", 2)},
    remarks=[
        "a round is the n-th call of every function; all intervals of its parts together hold with 95 %"
    ],
)


class _Columns:
    """Calls by function and process, each with its stages, in the order of the calls."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, list[Unit]]] = defaultdict(lambda: defaultdict(list))

    def add(self, name: str, process: str, one: Unit) -> None:
        column = self.kept[name][process]
        if len(column) < 2 * MAX_UNITS:
            column.append(one)

    def rounds(self) -> Iterator[Unit]:
        """Yields as many rounds as the functions called throughout allow: those with at least half the calls
        of the most called one.
        """
        lengths = {
            name: min(map(len, processes.values()), default=0) for name, processes in self.kept.items()
        }
        enough = max(lengths.values(), default=0) / 2
        chosen = {name: length for name, length in lengths.items() if length and length >= enough}
        for place in range(min([*chosen.values(), MAX_UNITS]) if chosen else 0):
            means = {
                name: mean_unit([column[place] for column in self.kept[name].values()]) for name in chosen
            }
            parts = {f"{name}, {part}": ns for name, one in means.items() for part, ns in one.parts.items()}
            moved = [one.amounts[MOVED] for one in means.values()]
            amounts = {MOVED: None if None in moved else sum(filter(None, moved))}
            yield Unit(place + 1, sum(filter(None, parts.values())), parts, amounts)


def compare(base: Sequence[Session], new: Sequence[Session], options: CompareOptions) -> Comparison:
    """Compares the runs of one side with those of the other. Raises PerfError if they cannot be compared."""
    runs = used_parts([_units(session, options.warmup) for session in (*base, *new)])
    return Compared(runs[: len(base)], runs[len(base) :], TERMS, options).comparison()


def _units(session: Session, warmup: int) -> Units:
    """The job's rounds. Raises PerfError if it has too little to compare."""
    found = [*_rounds(session)]
    first = warm(session, len(found), warmup, "rounds to compare (calls of every function)")
    left_out = {"rounds at the start": first} if first else {}
    facts, skipped = dict(sorted(session.header.facts.items())), session.reading.skipped
    return Units.of(session, found[first:], left_out, facts, skipped_lines=skipped)


def _rounds(session: Session) -> Iterator[Unit]:
    calls, operations, course = _Columns(), _Columns(), session.course
    for record in session:
        if isinstance(record, CallRecord) and not record.error:
            name = course.name(record.process, record.function)
            calls.add(name, course.label(record.process), _stages_of_call(record))
        elif isinstance(record, OperationRecord) and record.operation in KINDS and not record.error:
            operations.add(Kind(record.operation).name.lower(), course.label(record.process), _stages(record))
    return (calls if calls.kept else operations).rounds()


def _stages_of_call(call: CallRecord) -> Unit:
    known = call.get_bytes is not None and call.put_bytes is not None
    moved = ((call.get_bytes or 0) + (call.put_bytes or 0)) / MIB if known else None
    parts = {"get": call.get_ns, "compute": call.compute_ns or 0, "put": call.put_ns or 0}
    return Unit(call.number, call.total_ns, parts, {MOVED: moved})


def _stages(one: OperationRecord) -> Unit:
    parts = stages_ns(one)
    moved = None if one.size_bytes is None else one.size_bytes / MIB
    return Unit(one.number, one.total_ns, parts | {"other": max(0, other_ns(one))}, {MOVED: moved})
