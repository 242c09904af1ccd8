"""The report of a session's calls: one pass over them, in bounded memory."""

from __future__ import annotations

from functools import partial
from typing import Any

from flagscale_perf.analysis.blocks import REPORT_VERSION
from flagscale_perf.analysis.extremes import Extremes
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.analysis.session import Session
from flagscale_perf.rpc.analysis.columns import Columns, added, call_at, calls_in, largest, least
from flagscale_perf.rpc.analysis.layers import FIRST, find_layer
from flagscale_perf.rpc.analysis.served import Served
from flagscale_perf.rpc.analysis.source import Source, open_source
from flagscale_perf.rpc.analysis.sums import Sample, Tops, add_batch
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.rpc.totals import CallTotals, Totals, tenths
from flagscale_perf.store.run_file import Reading


class Fold:
    """Sums up a session's calls, batch by batch, in bounded memory."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forgets what came before: another session of the same log begins."""
        self.totals = CallTotals()
        self.slowest, self.largest = Tops(), Tops()
        self.course, self.sample = Extremes[CallRecord](), Sample()
        self.first: list[CallRecord] = []
        self.lowest = self.highest = 0
        self.start_ns: int | None = None
        self.end_ns = 0

    def add(self, columns: Columns) -> None:
        """Adds a batch that follows the earlier ones."""
        add_batch(self.totals, columns)
        self.slowest.add(columns, columns["total_ns"])
        self.largest.add(columns, added(columns["sent_bytes"], columns["received_bytes"]))
        self.course.add(columns["total_ns"], partial(call_at, columns))
        self.sample.add(columns)
        numbers = columns["number"]
        self.first += calls_in(columns, 0, FIRST - len(self.first))
        self.lowest = min(self.lowest or numbers[0], least(numbers))
        self.highest = max(self.highest, largest(numbers))
        starts = columns["start_ns"]
        self.start_ns = least(starts) if self.start_ns is None else min(self.start_ns, least(starts))
        self.end_ns = max(self.end_ns, largest(added(starts, columns["total_ns"])))


class CallsReport:
    """The whole report of a session.

    Attributes:
        source: where the calls are from.
        facts: of the session.
        totals: of all calls and each method's.
        slowest, largest: by total time and by bytes sent and received.
        course: calls in their order: all of them, or of each stretch the shortest and the longest.
        sample: of them, all if there are few.
        first: the first ones, one after another.
        layer: the pattern of calls that is repeated; None where there is none.
        missing: calls that are not there, by the gaps in their numbers; None where only some are recorded.
        wall_ns: from the first call's start to the last one's end; None where starts are not known.
        findings: what holds the calls back.
    """

    def __init__(self, source: Source, fold: Fold) -> None:
        """Without findings; `fold`: of all that the source has read."""
        self.source, self.facts, self.totals = source, source.facts(), fold.totals
        self.slowest, self.largest = fold.slowest.calls(), fold.largest.calls()
        self.course, self.sample, self.first = fold.course.rows(), fold.sample.calls, fold.first
        self.layer = find_layer(fold.first, source.starts_known)
        calls = self.overall.calls
        gap = fold.highest - fold.lowest + 1 - calls if calls else 0
        self.missing = None if source.selected() else max(0, gap)
        took_ns = fold.end_ns - (fold.start_ns or 0)
        self.wall_ns = took_ns if source.starts_known and calls else None
        self.findings: list[Finding] = []
        self.unjudged: list[str] = []

    @property
    def overall(self) -> Totals:
        """The sums of all methods together."""
        return self.totals.overall

    @property
    def is_shared(self) -> bool:
        """Whether most bytes travel in shared memory, by what the session says or what was moved."""
        return self.facts.payload == "shared" or self.overall.shared_bytes > self.overall.socket_bytes

    @property
    def served(self) -> Served:
        """The server's own records of the calls."""
        return self.source.served

    @property
    def reading(self) -> Reading:
        """What was read, and what could not be."""
        return self.source.reading()

    def by_method(self) -> list[tuple[str, Totals, float]]:
        """Name, sums and share of the time, the longest first; the shares add to 1."""
        methods = sorted(self.totals.methods.items(), key=lambda item: -item[1].total_ns)
        shares = tenths([totals.total_ns for _, totals in methods])
        return [(name, totals, share) for (name, totals), share in zip(methods, shares, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        reading = self.reading
        return {
            "report_version": REPORT_VERSION,
            "path": reading.path,
            "session": self.source.title(),
            "state": self.source.state() or None,
            "file_remarks": reading.remarks,
            "facts": self.facts.as_dict(),
            "methods_recorded": self.source.selected() or None,
            "overall": _sums(self.overall),
            "methods": {name: _sums(totals) for name, totals, _ in self.by_method()},
            "slowest": [call._asdict() for call in self.slowest],
            "largest": [call._asdict() for call in self.largest],
            "layer": None if self.layer is None else self.layer.as_dict(),
            "missing_calls": self.missing,
            "wall_ns": self.wall_ns,
            "findings": [each.as_dict() for each in self.findings],
            "not_judged": self.unjudged,
            "events": self.source.events,
            "skipped_lines": reading.skipped,
            "first_skipped": [[line.number, line.reason] for line in reading.first_skipped],
        }


def _sums(totals: Totals) -> dict[str, Any]:
    stages = {one.stage.name: {"ns": one.took_ns, "share": one.share} for one in totals.stages()}
    return totals.as_dict({"stages": stages})


def read_calls(session: Session) -> CallsReport:
    """The report of a session or a log, without findings. Raises PerfError if it cannot be read."""
    source = open_source(session)
    fold = Fold()
    for columns in source.read(fold.begin, [fold]):
        fold.add(columns)
    return CallsReport(source, fold)
