"""Sums up a session of profiled ranks as it goes: its summary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from statistics import median
from typing import Any

from flagscale_perf.profile.figures import PARTS, STEPS, part_ns
from flagscale_perf.profile.records import RankRecord, RowRecord, StepRecord, WindowRecord
from flagscale_perf.sinks.base import Metric, Presentation, Series
from flagscale_perf.sinks.csv import CsvSink
from flagscale_perf.sinks.summary import SummarySink
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import RUNNING, Record, RunEnd, RunHeader

SUMMARY_VERSION = 1


class ProfileSummary:
    """Content of `perf_summary_<session>.json`."""

    def __init__(self, header: RunHeader) -> None:
        self._header = header
        self._ranks: dict[int, _Rank] = {}
        self._end: RunEnd | None = None

    def add(self, record: Record) -> None:
        """Adds the next record of the session."""
        if isinstance(record, RunEnd):
            self._end = record
        elif isinstance(record, ProcessRecord):
            self._ranks.setdefault(record.number, _Rank()).process = record
        elif isinstance(record, RowRecord | StepRecord | WindowRecord | RankRecord | NameRecord):
            self._ranks.setdefault(record.process, _Rank()).add(record)

    def text(self) -> str:
        """The summary so far."""
        content = {
            "summary_version": SUMMARY_VERSION,
            "session": self._header.session_id,
            "state": RUNNING if self._end is None else self._end.reason,
            "records_lost": None if self._end is None else self._end.dropped,
            "facts": self._header.facts,
            "ranks": [rank.content() for rank in self._ranks.values()],
        }
        return json.dumps(content, indent=1) + "\n"


class _Rank:
    """The sums of one process."""

    def __init__(self) -> None:
        self.process: ProcessRecord | None = None
        self._place: RankRecord | None = None
        self._names: dict[int, str] = {0: ""}
        self._rows = self._events = self._dropped_events = 0
        self._reasons: list[int] = []
        self._phases: dict[int, _Steps] = {}

    def add(self, record: RankRecord | NameRecord | RowRecord | StepRecord | WindowRecord) -> None:
        """Adds the next record of the process."""
        if isinstance(record, NameRecord):
            self._names[record.number] = record.text
        elif isinstance(record, RankRecord):
            self._place = record
        elif isinstance(record, StepRecord):
            self._phases.setdefault(record.phase, _Steps()).add(record)
        elif isinstance(record, WindowRecord):
            self._reasons.append(record.reason)
            self._events += record.events
            self._dropped_events += record.dropped_events
        else:
            self._rows += 1

    def content(self) -> dict[str, Any]:
        """The process as JSON."""
        place = self._place
        return {
            "rank": None if place is None else place.rank,
            "world_size": None if place is None else place.world_size,
            "model": None if place is None else self._name(place.model),
            "host": None if place is None else self._name(place.host),
            "device": None if place is None else self._name(place.device),
            "process": None if self.process is None else asdict(self.process),
            "windows": len(self._reasons),
            "rows": self._rows,
            "without_rows": [self._name(reason) for reason in self._reasons if reason],
            "events": self._events,
            "dropped_events": self._dropped_events,
            "steps": {self._name(phase): steps.content() for phase, steps in self._phases.items()},
        }

    def _name(self, number: int) -> str | None:
        return self._names.get(number)


class _Steps:
    """The sums over steps of one phase."""

    def __init__(self) -> None:
        self._profiled_ns: list[int] = []
        self._clean_ns: list[int] = []
        self._parts_ns: dict[str, int | None] = {}

    def add(self, step: StepRecord) -> None:
        """Adds the next step."""
        if not step.is_profiled:
            self._clean_ns.append(step.total_ns)
            return
        self._profiled_ns.append(step.total_ns)
        for key, _ in PARTS:
            part, before = part_ns(step, key), self._parts_ns.get(key, 0)
            self._parts_ns[key] = None if part is None or before is None else before + part

    def content(self) -> dict[str, Any]:
        """The phase as JSON."""
        profiled, clean = _median(self._profiled_ns), _median(self._clean_ns)
        return {
            "profiled": len(self._profiled_ns),
            "clean": len(self._clean_ns),
            "profiled_median_ns": profiled,
            "clean_median_ns": clean,
            "observer_ratio": None if profiled is None or not clean else profiled / clean,
            "total_ns": sum(self._profiled_ns),
            **{f"{key}_ns": total for key, total in self._parts_ns.items()},
        }


def _median(values: list[int]) -> float | None:
    return median(values) if values else None


class NoMetrics:
    """A profile has no Prometheus metrics: it is read when it is complete."""

    table: Mapping[str, Metric] = {}

    def __init__(self, header: RunHeader) -> None:
        """Takes any session."""

    def add(self, record: Record) -> None:
        """Ignores the record."""

    def values(self) -> Series:
        """Always None: a profile has no such values."""
        return {}


PRESENTATION = Presentation(
    "Profiled ranks", STEPS, lambda header: [], ProfileSummary, NoMetrics, views=(SummarySink, CsvSink)
)
