"""A recorded session in Python: a training with its own tables, others as tables of what was recorded."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.frames import Field, frame_of
from flagscale_perf.analysis.instrument import load
from flagscale_perf.analysis.job import Job, open_session, sessions_below
from flagscale_perf.analysis.jobs import as_jobs
from flagscale_perf.analysis.jobs import report_of as runs_of
from flagscale_perf.analysis.lake import to_arrow
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.analysis.session import MARKS, Course, Session
from flagscale_perf.analysis.whole import Whole
from flagscale_perf.report.format import shown
from flagscale_perf.report.markup import tag
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import local_path
from flagscale_perf.training.analysis.opened import RecordedRun

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow import Table

TRAINING = "training"
_FINDINGS = 3  # that a notebook shows


class OfJob(Session):
    """A session, and what was recorded of the same job: the newest session of each instrument, None where it
    has none. Why a session is of it, `job` says.
    """

    _within: Path | None = None

    @cached_property
    def job(self) -> Whole:
        """The leading session, the others with the evidence for it, and those that stand apart."""
        return Job(self._within or self.path.parent).whole_of(self)

    @property
    def training(self) -> RecordedRun | None:
        """The training."""
        found = self._newest(TRAINING)
        return found if isinstance(found, RecordedRun) else None

    @property
    def profile(self) -> RecordedSession | None:
        """Its profiled steps."""
        return self._session("profile")

    @property
    def calls(self) -> RecordedSession | None:
        """Calls between its processes."""
        return self._session("rpc")

    @property
    def trace(self) -> RecordedSession | None:
        """Its queue."""
        return self._session("trace")

    @property
    def bench(self) -> RecordedSession | None:
        """Experiments."""
        return self._session("bench")

    def _session(self, instrument: str) -> RecordedSession | None:
        found = self._newest(instrument)
        return found if isinstance(found, RecordedSession) else None

    def _newest(self, instrument: str) -> Session | None:
        if self.instrument == instrument:
            return self
        found = self.job.of(instrument)
        return _opened(found[-1], instrument, self._within) if found else None

    def _repr_html_(self) -> str:
        """What a notebook shows: key figures, the costliest findings, and what was recorded beside it."""
        report = load(self.instrument).report(self.again())
        findings = [] if report.findings is None else [each.title for each in report.findings.found]
        beside = [f"{one.session.instrument} {one.session.header.session_id}" for one in self.job.members]
        rows = [(tile.label, shown(tile.value)) for tile in report.tiles]
        rows += [("finding", title) for title in findings[:_FINDINGS]] + [
            ("beside it", each) for each in beside
        ]
        head = tag("b", f"{report.subject or shown(report.title)} {report.state}".strip())
        return head + tag("table", *(tag("tr", tag("th", name), tag("td", text)) for name, text in rows))


class OpenedRun(OfJob, RecordedRun):
    """A training, and what was recorded of the same job."""


@overload
def open_run(  # type: ignore[overload-overlap]  # any other text
    path: str | os.PathLike[str], session: str | None = None, instrument: Literal["training"] = "training"
) -> OpenedRun: ...


@overload
def open_run(
    path: str | os.PathLike[str], session: str | None = None, *, instrument: str
) -> RecordedSession: ...


def open_run(
    path: str | os.PathLike[str], session: str | None = None, instrument: str = TRAINING
) -> OpenedRun | RecordedSession:
    """A finished, killed or running training from its files alone, or a session of another instrument; its
    `profile`, `calls`, `trace` and `training` are what was recorded of the same job.

    Args:
        path: the directory of --perf-log-dir, or one file of a session in it.
        session: a session of the directory, such as "20240129_103000"; None for the newest.
        instrument: "training", "rpc" (calls), "trace" (a queue), "profile" or "bench" (experiments).

    Raises PerfError where there is no such session, with what is there instead.
    """
    place = Path(local_path(os.fspath(path)))
    found = open_session(place, session, instrument)
    return _opened(found, instrument, place if place.is_dir() and found.files else None)


def open_runs(
    directory: str | os.PathLike[str], where: Sequence[str] = (), sort: str | None = None
) -> DataFrame:
    """The jobs below a directory as a table: a row for each, as `flagscale-perf runs --format csv` has them,
    with a column for each key in which their configurations differ.

    Args:
        directory: where to look.
        where: a condition such as "tp=2" or "mfu>40%", or several, all of which hold for a training in the
            table.
        sort: a column or a key of the configuration; None for the newest last.

    Raises PerfError where there is no run file, or no such run, and without pandas.
    """
    listing = sessions_below(Path(local_path(os.fspath(directory))))
    conditions = [where] if isinstance(where, str) else where
    chosen = replace(as_jobs(listing), is_drawn=False, where=conditions, sort=sort)
    head, *rows = runs_of(chosen, is_all_read=False).rows
    if listing.kept is not None:
        listing.kept.keep(is_all=not where)
    return frame_of(list(map(str, head)), rows)


def _opened(session: Session, instrument: str, within: Path | None) -> OpenedRun | RecordedSession:
    """`within`: directory in which and right below which its job is; None for its own."""
    made = OpenedRun(session) if instrument == TRAINING else RecordedSession(session, instrument)
    made._within = within
    return made


class RecordedSession(OfJob):
    """One session of another instrument than a training, all machines of its job together. The tables need
    pandas; a column has its unit in its name, and NaN where a value is not known.
    """

    def __init__(self, session: Session, instrument: str) -> None:
        """Use `open_run` instead."""
        self._instrument = load(instrument)
        super().__init__(session.files, session.logs, session.instrument, session.aside)
        self.check(instrument, f"open_run(..., instrument={session.instrument!r})")

    def __repr__(self) -> str:
        return f"open_run({str(self.path)!r}, instrument={self.header.instrument!r})"

    def report(self) -> Report:
        """The report that `flagscale-perf report` shows; `report().content.as_dict()` is its JSON."""
        return self._instrument.report(self.again())

    def findings(self) -> Sequence[Finding]:
        """What holds the session back, the costliest first."""
        findings = self.report().findings
        return [] if findings is None else findings.found

    def to_arrow(self, kind: str | type) -> Table:
        """A table of Arrow with the records of a kind, as they were recorded: see docs/query.md."""
        return to_arrow(self, kind)

    def rows(self) -> DataFrame:
        """The rows of `flagscale-perf report --format csv`."""
        rows = iter(self.report().rows)
        head = next(rows, ())
        return frame_of(list(map(str, head)), rows)

    def table(self, kind: type[Any]) -> DataFrame:
        """A row for each record of a type of `flagscale_perf.<instrument>.records`: durations in ms, sizes in
        GB, starts as `elapsed_s` since the session's, texts for their numbers, and processes by their labels.
        """
        if not hasattr(kind, "_fields"):
            raise PerfError(f"{kind.__name__} is no row of plain values; use rows() or records()")
        names, session, start_ns = kind._fields, self.again(), self.header.start_mono_ns
        columns = ["elapsed_s" if name in MARKS else Field.of(name).name for name in names]
        texts = self._instrument.tables.texts.get(kind, ())
        rows = (
            [_cell(session.course, record, name, texts, start_ns) for name in names]
            for record in session
            if isinstance(record, kind)
        )
        return frame_of(columns, rows)


def _cell(course: Course, record: Any, name: str, texts: Collection[str], start_ns: int) -> Any:
    value = getattr(record, name)
    if value is None:
        return None
    if name in MARKS:
        return (value - start_ns) / NS_PER_S
    if name == "process":
        return course.label(value)
    return course.name(record.process, value) if name in texts else Field.of(name).value(value)
