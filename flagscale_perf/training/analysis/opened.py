"""A recorded run in Python: what it says of itself, its records one by one, its report, and its tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from flagscale_perf.analysis.lake import from_columns, to_arrow
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.analysis.session import Session
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.spine.records import Record
from flagscale_perf.store.runs import LONG_BYTES
from flagscale_perf.store.tables import has_arrow
from flagscale_perf.training.analysis import frames
from flagscale_perf.training.analysis.every_rank import EveryRank
from flagscale_perf.training.analysis.fold import read_report, read_summary
from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.records import StepRecord

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow import Table


class RecordedRun(Session):
    """One session of a training.

    The tables need pandas. A column has its unit in its name (`_ms`, `_s`, `_gb`), and NaN where a value is
    not known. `first` and `last` limit a table to these iterations; the records of a run of any length can be
    gone through in constant memory.

    Attributes:
        facts: what ran, on what, as far as it was known when the session began.
        options: of the monitor, those in force.
    """

    def __init__(self, session: Session) -> None:
        """Use `open_run` instead. Raises PerfError for a session of another instrument."""
        super().__init__(session.files, session.logs, session.instrument, session.aside)
        self.check("training", f"open_run(..., instrument={session.instrument!r})")
        self.facts = RunFacts.of(self.header.facts)
        self.options = PerfConfig.of(self.header.config)

    def __repr__(self) -> str:
        return f"open_run({str(self.path)!r})"

    def report(self) -> TrainingReport:
        """The report that `flagscale-perf report` shows, as data."""
        return read_report(self.again())

    def findings(self) -> list[Finding]:
        """What holds the run back, the costliest first."""
        return self.report().findings

    def summary(self) -> dict[str, Any]:
        """The content of `perf_summary_<session>.json`, made of the run file anew."""
        return read_summary(self.again()).as_dict()

    def to_arrow(self, kind: str | type) -> Table:
        """A table of Arrow with the records of a kind, as they were recorded: see docs/query.md."""
        return to_arrow(self, kind)

    def steps(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """A row for each iteration."""
        if self.size_bytes < LONG_BYTES or not has_arrow():
            return frames.steps(self._between(first, last), self.header)
        make = partial(frames.steps_of, header=self.header, first=first, last=last)
        return from_columns(self, StepRecord, make)

    def phases(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """A row for each iteration whose phases were measured; the phases add up to `iteration_ms`."""
        return frames.phases(self._between(first, last), self.facts)

    def intervals(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """A row for each line of the text log, with the columns of `--perf-csv`."""
        return frames.intervals(self._between(first, last), self.header)

    def ranks(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """A row for each rank (of more than 256: for several) and stretch of iterations."""
        return frames.ranks(self._between(first, last), self.facts)

    def every_rank(
        self, first: int | None = None, last: int | None = None, ranks: Collection[int] | None = None
    ) -> DataFrame:
        """A row for each rank and block of some iterations (5; 50 of 10,000 ranks), as the ranks sent them:
        medians over `steps` steps. Its `attrs["remarks"]` say what was removed or damaged.

        Args:
            ranks: these only; None for all.

        Raises PerfError for a session whose ranks are not kept, see `--perf-ranks-gb`.
        """
        return frames.every_rank(EveryRank(self, ranks), self.header, first, last)

    def events(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """A row for each remark of the monitor, and for what happened to it."""
        return frames.events(self._between(first, last), self.header)

    def _between(self, first: int | None, last: int | None) -> Iterator[Record]:
        low, high = float("-inf") if first is None else first, float("inf") if last is None else last
        return (record for record in self.records() if low <= getattr(record, "iteration", low) <= high)
