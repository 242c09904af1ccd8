"""Reads the run file of experiments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from flagscale_perf.analysis.session import Session
from flagscale_perf.bench.records import BenchBegun, BenchEnded, BenchFigure, BenchPoint
from flagscale_perf.spine.averages import median, percentile
from flagscale_perf.spine.records import KILLED, RUNNING, RunHeader
from flagscale_perf.store.run_file import Reading

COMPLETE = "complete"


class Spread(NamedTuple):
    """The spread of a point's repetitions."""

    median: float
    low: float
    p95: float
    repetitions: int


def spread(samples: Sequence[float]) -> Spread:
    """The spread of at least one sample."""
    return Spread(median(samples), min(samples), percentile(samples, 0.95), len(samples))


Entry = TypeVar("Entry", BenchPoint, BenchFigure)


def _matching(entries: Iterable[Entry], figure: str, case: Mapping[str, Any]) -> list[Entry]:
    return [
        one
        for one in entries
        if one.figure == figure and all(one.case.get(key) == value for key, value in case.items())
    ]


@dataclass
class Part:
    """One experiment of a run file.

    Attributes:
        name: of it.
        planned: points it meant to measure; None where it did not know.
        settings: how it measured.
        points, figures: in the order in which they came.
        ended: None where it was still under way when the file ended.
        run_state: how the run ended.
    """

    name: str
    planned: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    points: list[BenchPoint] = field(default_factory=list)
    figures: list[BenchFigure] = field(default_factory=list)
    ended: BenchEnded | None = None
    run_state: str = KILLED

    @property
    def is_complete(self) -> bool:
        """Whether everything planned was measured."""
        return self.ended is not None and self.ended.is_complete

    @property
    def state(self) -> str:
        """`complete`, `running`, or `partial: ` and why."""
        if self.ended is None:
            return RUNNING if self.run_state == RUNNING else f"partial: {self.run_state}"
        return COMPLETE if self.ended.is_complete else f"partial: {self.ended.reason}"

    @property
    def count(self) -> str:
        """`12 points`, or `5 of 12 points`."""
        measured = len(self.points)
        is_all = self.planned is None or self.planned == measured
        return (
            f"{measured} point{'s' * (measured != 1)}" if is_all else f"{measured} of {self.planned} points"
        )

    def of(self, figure: str, **case: Any) -> list[BenchPoint]:
        """The points of this figure whose case contains all of these values."""
        return _matching(self.points, figure, case)

    def values(self, figure: str, **case: Any) -> list[BenchFigure]:
        """The same for figures that were not measured here."""
        return _matching(self.figures, figure, case)


@dataclass(frozen=True)
class Bench:
    """One run file.

    Attributes:
        path, header: of it.
        parts: the experiments, by name; of one that was run twice the last.
        begun: when.
        state: how the run ended.
        reading: what was read.
    """

    path: Path
    header: RunHeader
    parts: Mapping[str, Part]
    begun: str
    state: str
    reading: Reading


def read_bench(session: Session) -> Bench:
    """Leaves out points without a sample. Raises PerfError for a file that cannot be read."""
    parts, again = dict[str, Part](), Counter[str]()
    for record in session:
        match record:
            case BenchBegun():
                again[record.experiment] += record.experiment in parts
                parts[record.experiment] = Part(record.experiment, record.planned, record.settings)
            case BenchPoint() if record.samples:
                _part(parts, record.experiment).points.append(record)
            case BenchFigure():
                _part(parts, record.experiment).figures.append(record)
            case BenchEnded():
                _part(parts, record.experiment).ended = record
    for part in parts.values():
        part.run_state = session.state
    reading = session.reading
    reading.remarks.extend(
        f"{name} was run {count + 1} times; only the last one is shown"
        for name, count in again.items()
        if count
    )
    return Bench(session.path, session.header, parts, session.begun, session.state, reading)


def _part(parts: dict[str, Part], name: str) -> Part:
    return parts.setdefault(name, Part(name))


def case_text(case: Mapping[str, Any]) -> str:
    """For example `all_reduce, ranks 2, size_bytes 1024`: the operation first, then its conditions."""
    words = [str(case["op"])] if "op" in case else []
    return ", ".join([*words, *(f"{key} {value}" for key, value in case.items() if key != "op")])
