"""A recorded run in Python: what it says of itself, its records one by one, its report, and its tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from flagscale_perf.analysis.rules import Finding
from flagscale_perf.analysis.run_file import RunFile, find_run_file
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import Record, RunHeader
from flagscale_perf.spine.session import labels_of
from flagscale_perf.training.analysis import frames
from flagscale_perf.training.analysis.fold import read_report, read_summary
from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.facts import RunFacts

if TYPE_CHECKING:
    from pandas import DataFrame

Kind = TypeVar("Kind")


def open_run(path: str | os.PathLike[str], session: str | None = None) -> RecordedRun:
    """A finished, killed or running training, from its files alone.

    Args:
        path: the directory of --perf-log-dir, or one file of a session in it.
        session: a session of the directory, such as "20240129_103000"; None for the newest.

    Raises PerfError where there is no run, with what is there instead.
    """
    return RecordedRun(find_run_file(Path(path), session))


class RecordedRun:
    """One session of a training. Each call reads the file from the beginning, so that a running one is seen
    as it is now; lines that are no records are left out, and `report().reading` says how many they are.

    The tables need pandas. A column has its unit in its name (`_ms`, `_s`, `_gb`), and NaN where a value is
    not known. `first` and `last` limit a table to these iterations; the records of a run of any length can be
    gone through in constant memory.

    Attributes:
        path: of the run file.
        header: its first record.
        facts: what ran, on what, as far as it was known when the session began.
        options: of the monitor, those in force.
    """

    def __init__(self, path: Path) -> None:
        """Use `open_run`."""
        self.path = path
        self.header: RunHeader = RunFile(path).header
        if self.header.instrument != "training":
            raise PerfError(
                f"{str(path)!r} is of the instrument {self.header.instrument!r}; open_run reads trainings"
            )
        labels_of(self.header)  # raises for a header of another program's making
        self.facts = RunFacts.of(self.header.facts)
        self.options = PerfConfig.of(self.header.config)

    def __repr__(self) -> str:
        return f"open_run({str(self.path)!r})"

    @overload
    def records(self) -> Iterator[Record]: ...

    @overload
    def records(self, kind: type[Kind]) -> Iterator[Kind]: ...

    def records(self, kind: type[Any] = object) -> Iterator[Any]:
        """Every record in the order of the file, or those of a type of `flagscale_perf.training.records`."""
        return (record for record in RunFile(self.path) if isinstance(record, kind))

    def is_live(self) -> bool:
        """Whether the training's writer still has the file."""
        return RunFile(self.path).is_live()

    def report(self) -> TrainingReport:
        """What `flagscale-perf report` shows, as data."""
        return read_report(self.path)

    def findings(self) -> list[Finding]:
        """What holds the run back, in the order of its cost."""
        return self.report().findings

    def summary(self) -> dict[str, Any]:
        """The content of `perf_summary_<session>.json`, made of the run file anew."""
        return read_summary(self.path).as_dict()

    def steps(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """A row for each iteration."""
        return frames.steps(self._between(first, last), self.header)

    def phases(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """A row for each iteration whose phases were measured; the phases add up to `iteration_ms`."""
        return frames.phases(self._between(first, last), self.facts)

    def intervals(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """A row for each line of the text log, with the columns of `--perf-csv`."""
        return frames.intervals(self._between(first, last), self.header)

    def ranks(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """A row for each rank (of more than 256: for several) and stretch of iterations."""
        return frames.ranks(self._between(first, last), self.facts)

    def events(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """A row for each remark of the monitor, and for what happened to it."""
        return frames.events(self._between(first, last), self.header)

    def _between(self, first: int | None, last: int | None) -> Iterator[Record]:
        """The records whose iteration is within the limits, and those that have none."""
        low, high = float("-inf") if first is None else first, float("inf") if last is None else last
        return (record for record in self.records() if low <= getattr(record, "iteration", low) <= high)
