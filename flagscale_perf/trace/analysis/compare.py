"""Compares runs round by round: the n-th call of every function, or the n-th operations if there are no
calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flagscale_perf.analysis.compare.compare import CompareOptions, Comparison, Terms
from flagscale_perf.analysis.compare.driver import MAX_UNITS, Compared, Units, used_parts, warm
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.averages import mean_of_all
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.trace.figures import MIB, stages_ns
from flagscale_perf.trace.records import KINDS, CallRecord, Kind, OperationRecord

TERMS = Terms(
    "round",
    MAX_UNITS,
    labels={"mean": ("mean, {unit}", 3), "p95": ("p95, {unit}", 3), "moved_mib": ("put and got, MiB", 2)},
    remarks=[
        "a round is the n-th call of every function; all intervals of its parts together hold with 95 %"
    ],
)


@dataclass
class Round:
    """The n-th calls. Times in nanoseconds, averaged over the processes.

    Attributes:
        total_ns: of all functions.
        parts: by `function, stage`.
        moved_bytes: of the operations; None where those of one are not known.
    """

    total_ns: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    moved_bytes: float | None = 0.0


_Parts = tuple[Mapping[str, float], int | None]  # nanoseconds by stage, and the bytes if they are known


class _Columns:
    """Calls by function and process, each with its stages, in the order of the calls."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, list[_Parts]]] = defaultdict(lambda: defaultdict(list))

    def add(self, name: str, process: str, parts: _Parts) -> None:
        column = self.kept[name][process]
        if len(column) < 2 * MAX_UNITS:
            column.append(parts)

    def rounds(self) -> Iterator[Round]:
        """Yields as many rounds as the functions called throughout allow: those with at least half the calls
        of the most called one.
        """
        lengths = {
            name: min(map(len, processes.values()), default=0) for name, processes in self.kept.items()
        }
        enough = max(lengths.values(), default=0) / 2
        chosen = {name: length for name, length in lengths.items() if length and length >= enough}
        for place in range(min([*chosen.values(), MAX_UNITS]) if chosen else 0):
            made, moved = Round(), list[float | None]()
            for name in chosen:
                columns = [column[place] for column in self.kept[name].values()]
                moved.append(mean_of_all([moved_bytes for _, moved_bytes in columns]))
                for part in dict.fromkeys(part for times, _ in columns for part in times):
                    mean = sum(times.get(part, 0.0) for times, _ in columns) / len(columns)
                    made.parts[f"{name}, {part}"] = mean
                    made.total_ns += mean
            mean_bytes = mean_of_all(moved)
            made.moved_bytes = None if mean_bytes is None else mean_bytes * len(moved)
            yield made


def compare(base: Sequence[Session], new: Sequence[Session], options: CompareOptions) -> Comparison:
    """Compares the runs of one side with those of the other. Raises PerfError if they cannot be compared."""
    runs = used_parts([_units(session, options.warmup) for session in (*base, *new)])
    return Compared(runs[: len(base)], runs[len(base) :], TERMS, options).comparison()


def _units(session: Session, warmup: int) -> Units:
    """The job's rounds. Raises PerfError if it has too little to compare."""
    found = [*_rounds(session)]
    first = warm(session, len(found), warmup, "rounds to compare (calls of every function)")
    rounds = found[first:]
    names = sorted({name for one in rounds for name in one.parts})
    return Units(
        session,
        times=[one.total_ns / NS_PER_MS for one in rounds],
        parts={name: [_scaled(one.parts.get(name), NS_PER_MS) for one in rounds] for name in names},
        left_out={"rounds at the start": first} if first else {},
        facts=dict(sorted(session.header.facts.items())),
        amounts={"moved_mib": [_scaled(one.moved_bytes, MIB) for one in rounds]},
        skipped_lines=session.reading.skipped,
    )


def _rounds(session: Session) -> Iterator[Round]:
    calls, operations, course = _Columns(), _Columns(), session.course
    for record in session:
        if isinstance(record, CallRecord) and not record.error:
            name = course.name(record.process, record.function)
            calls.add(name, course.label(record.process), _stages_of_call(record))
        elif isinstance(record, OperationRecord) and record.operation in KINDS and not record.error:
            operations.add(Kind(record.operation).name.lower(), course.label(record.process), _stages(record))
    return (calls if calls.kept else operations).rounds()


def _scaled(value: float | None, unit: int) -> float | None:
    return None if value is None else value / unit


def _stages_of_call(call: CallRecord) -> _Parts:
    known = call.get_bytes is not None and call.put_bytes is not None
    moved_bytes = (call.get_bytes or 0) + (call.put_bytes or 0) if known else None
    return {"get": call.get_ns, "compute": call.compute_ns or 0, "put": call.put_ns or 0}, moved_bytes


def _stages(one: OperationRecord) -> _Parts:
    parts = stages_ns(one)
    return parts | {"other": max(0, one.total_ns - sum(parts.values()))}, one.size_bytes
