"""Compares runs round by round: the n-th call of every function, or the n-th operations if there are no
calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.compare import blocks as comparison
from flagscale_perf.analysis.compare import sides
from flagscale_perf.analysis.compare.compare import NOISE, CompareOptions, Comparison
from flagscale_perf.analysis.compare.paired import Paired
from flagscale_perf.analysis.run_file import RunFile
from flagscale_perf.analysis.session import Course
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.trace.figures import MIB, stages_ns
from flagscale_perf.trace.records import KINDS, CallRecord, Kind, OperationRecord

MIN_ROUNDS, MAX_ROUNDS = 8, 4096
WARMUP_SHARE = 4  # at most every fourth round is left out as warm-up
ROUND = "round"
LABELS = {  # and decimals
    "mean": ("mean, {unit}", 3),
    "p95": ("p95, {unit}", 3),
    "moved_mib": ("put and got, MiB", 2),
}
REMARK = "a round is the n-th call of every function; all intervals of its parts together hold with 95 %"


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


@dataclass(frozen=True)
class Rounds:
    """The rounds of one run.

    Attributes:
        path: of the run file.
        rounds: in order.
        left_out: how many are not, by the reason.
        skipped_lines: that are no records.
        facts: of the run.
    """

    path: Path
    rounds: list[Round]
    left_out: dict[str, int]
    skipped_lines: int
    facts: Mapping[str, object]

    @property
    def title(self) -> str:
        """Name of the run in the comparison."""
        return self.path.stem


_Parts = tuple[Mapping[str, float], int | None]  # nanoseconds by stage, and the bytes if they are known


class _Columns:
    """Calls by function and process, each with its stages, in the order of the calls."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, list[_Parts]]] = defaultdict(lambda: defaultdict(list))

    def add(self, name: str, process: str, parts: _Parts) -> None:
        column = self.kept[name][process]
        if len(column) < 2 * MAX_ROUNDS:
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
        for place in range(min([*chosen.values(), MAX_ROUNDS]) if chosen else 0):
            made, moved = Round(), list[float | None]()
            for name in chosen:
                columns = [column[place] for column in self.kept[name].values()]
                moved.append(_mean([moved_bytes for _, moved_bytes in columns]))
                for part in dict.fromkeys(part for times, _ in columns for part in times):
                    mean = sum(times.get(part, 0.0) for times, _ in columns) / len(columns)
                    made.parts[f"{name}, {part}"] = mean
                    made.total_ns += mean
            mean_bytes = _mean(moved)
            made.moved_bytes = None if mean_bytes is None else mean_bytes * len(moved)
            yield made


def report_of(result: Comparison) -> Report:
    """The report as blocks, the same for every output format."""
    return comparison.report_of(result, LABELS, [REMARK], (ROUND, f"a {ROUND}"))


def compare(base: Sequence[Path], new: Sequence[Path], options: CompareOptions) -> Comparison:
    """Compares the runs of one side with those of the other. Raises PerfError if they cannot be compared."""
    runs = [_read(path, options.warmup) for path in (*base, *new)]
    cut, count = len(base), min(len(run.rounds) for run in runs)
    rows = [run.rounds[:count] for run in runs]
    paired = Paired(
        runs,
        cut,
        ROUND,
        times=[[one.total_ns / NS_PER_MS for one in row] for row in rows],
        parts=_parts(rows),
        left_out=[sides.left_out(run.left_out, len(run.rounds) - count) for run in runs],
        most=MAX_ROUNDS,
        noise=NOISE,
        same_run=sides.on_both_sides(runs[:cut], runs[cut:]),
    )
    differences = sides.differences(runs[0].facts, runs[cut].facts)
    return paired.judged(options).comparison(
        (_side(rows[:cut]), _side(rows[cut:])),
        sorted(differences, key=lambda one: one.name),
        [sides.trend(paired.times, cut, "Time of a round", ROUND)],
    )


def _read(path: Path, warmup: int) -> Rounds:
    """Raises PerfError if the file is not a run file or has too little to compare."""
    run, course = RunFile(path), Course()
    calls, operations = _Columns(), _Columns()
    for record in run:
        course.add(record)
        if isinstance(record, CallRecord) and not record.error:
            name = course.name(record.process, record.function)
            calls.add(name, course.label(record.process), _stages_of_call(record))
        elif isinstance(record, OperationRecord) and record.operation in KINDS and not record.error:
            operations.add(Kind(record.operation).name.lower(), course.label(record.process), _stages(record))
    rounds = list((calls if calls.kept else operations).rounds())
    first = min(warmup, len(rounds) // WARMUP_SHARE)
    if len(rounds) - first < MIN_ROUNDS:
        raise PerfError(
            f"{str(path)!r} has {len(rounds)} rounds to compare (calls of every function);"
            f" {MIN_ROUNDS + first} are needed: record a longer run"
        )
    left_out = {"rounds at the start": first} if first else {}
    return Rounds(path, rounds[first:], left_out, run.skipped, run.header.facts)


def _stages_of_call(call: CallRecord) -> _Parts:
    known = call.get_bytes is not None and call.put_bytes is not None
    moved_bytes = (call.get_bytes or 0) + (call.put_bytes or 0) if known else None
    return {"get": call.get_ns, "compute": call.compute_ns or 0, "put": call.put_ns or 0}, moved_bytes


def _stages(one: OperationRecord) -> _Parts:
    parts = stages_ns(one)
    return parts | {"other": max(0, one.total_ns - sum(parts.values()))}, one.size_bytes


def _mean(values: Sequence[float | None]) -> float | None:
    """None where one of them is not known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _parts(rows: Sequence[Sequence[Round]]) -> Mapping[str, list[list[float | None]]]:
    names = sorted({name for row in rows for one in row for name in one.parts})
    made: dict[str, list[list[float | None]]] = {}
    for name in names:
        known = [[one.parts.get(name) for one in row] for row in rows]
        if any(time for row in known for time in row):
            made[name] = [[None if time is None else time / NS_PER_MS for time in row] for row in known]
    return made


def _side(rows: Sequence[Sequence[Round]]) -> dict[str, float | None]:
    rounds = [one for row in rows for one in row]
    moved_bytes = _mean([one.moved_bytes for one in rounds])
    return sides.typical([one.total_ns / NS_PER_MS for one in rounds]) | {
        "moved_mib": None if moved_bytes is None else moved_bytes / MIB,
    }
