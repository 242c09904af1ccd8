"""A recorded session in Python: a training with its own tables, others as tables of what was recorded."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.frames import Field, frame_of
from flagscale_perf.analysis.instrument import load
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.lake import to_arrow
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.analysis.session import MARKS, Course, Session
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import local_path
from flagscale_perf.training.analysis.opened import RecordedRun

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow import Table

TRAINING = "training"


@overload
def open_run(  # type: ignore[overload-overlap]  # any other text
    path: str | os.PathLike[str], session: str | None = None, instrument: Literal["training"] = "training"
) -> RecordedRun: ...


@overload
def open_run(
    path: str | os.PathLike[str], session: str | None = None, *, instrument: str
) -> RecordedSession: ...


def open_run(
    path: str | os.PathLike[str], session: str | None = None, instrument: str = TRAINING
) -> RecordedRun | RecordedSession:
    """A finished, killed or running session, from its files alone.

    Args:
        path: the directory of --perf-log-dir, or one file of a session in it.
        session: a session of the directory, such as "20240129_103000"; None for the newest.
        instrument: "training", "rpc" (calls), "trace" (a queue), "profile" or "bench" (experiments).

    Raises PerfError where there is no such session, with what is there instead.
    """
    found = open_session(Path(local_path(os.fspath(path))), session, instrument)
    return RecordedRun(found) if instrument == TRAINING else RecordedSession(found, instrument)


class RecordedSession(Session):
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
            [_shown(session.course, record, name, texts, start_ns) for name in names]
            for record in session
            if isinstance(record, kind)
        )
        return frame_of(columns, rows)


def _shown(course: Course, record: Any, name: str, texts: Collection[str], start_ns: int) -> Any:
    value = getattr(record, name)
    if value is None:
        return None
    if name in MARKS:
        return (value - start_ns) / NS_PER_S
    if name == "process":
        return course.label(value)
    return course.name(record.process, value) if name in texts else Field.of(name).value(value)
