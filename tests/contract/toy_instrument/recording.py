"""Calls recorded: the face that a program uses and, run as a module, the writer process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from flagscale_perf.toy.figures import TABLE
from flagscale_perf.toy.records import CallRecord, CallsRecord

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.sinks.base import Metric, Presentation, Series
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.records import Record, RunHeader
from flagscale_perf.writer.instrument import Entry, Joined
from flagscale_perf.writer.process import serve
from flagscale_perf.writer.recorder import Recorder, Writing
from flagscale_perf.writer.task import Parent, WriterTask

CALLS = 10  # of an interval


class ToySummary:
    """How many calls there were."""

    def __init__(self, header: RunHeader) -> None:
        self._calls = 0

    def add(self, record: Record) -> None:
        self._calls += isinstance(record, CallRecord)

    def text(self) -> str:
        return json.dumps({"calls": self._calls})


class ToyMetrics:
    """The last interval."""

    def __init__(self, header: RunHeader) -> None:
        self.table = {
            figure.gauge.name: Metric(figure.gauge.name, figure.gauge.help, divisor=figure.unit.base)
            for figure in TABLE.figures
            if figure.gauge
        }
        self._rows = Rows(TABLE, header)
        self._values: Series = {}

    def add(self, record: Record) -> None:
        if self._rows.is_row(record):
            for gauge, value in self._rows.gauges(record):
                if value is not None:
                    self._values[gauge.name] = {(): value / self.table[gauge.name].divisor}

    def values(self) -> Series:
        return self._values


class ToyPipeline:
    """Every `CALLS` calls are summed."""

    name = "toy"
    presentation = Presentation("Toy", TABLE, lambda header: [], ToySummary, ToyMetrics)
    joined: tuple[type, ...] = (CallRecord,)
    period_s = 0.5
    position = 0

    def __init__(self, task: WriterTask, parent: Parent | None) -> None:
        self._anchor = task.anchor
        self.begin()

    def begin(self) -> None:
        self.position = 0
        self._calls: list[CallRecord] = []

    def replay(self, record: Record, dropped: int) -> None:
        if isinstance(record, CallRecord):
            self.fold(record, dropped)

    def owed(self) -> list[Entry]:
        return []

    def join(self, slots: Sequence[Record], is_full: bool) -> Joined:
        return Joined(list(slots), len(slots))

    def fold(self, record: Record, dropped: int) -> list[Entry]:
        if not isinstance(record, CallRecord):
            return []
        self.position = record.number
        self._calls.append(record)
        return self.close(dropped) if len(self._calls) == CALLS else []

    def collect(self) -> list[Entry]:
        return []

    def close(self, dropped: int) -> list[Entry]:
        calls, self._calls = self._calls, []
        if not calls:
            return []
        end_ns = self._anchor.wall_of(calls[-1].start_ns + calls[-1].dur_ns)
        took_ns, sent = sum(call.dur_ns for call in calls), sum(call.sent_bytes for call in calls)
        return [CallsRecord(calls[-1].number, end_ns, len(calls), took_ns, sent)]


def start(directory: str, **options: Any) -> Recorder:
    """Begins a session; its calls are given to `put`."""
    config = PerfConfig(perf_log_dir=directory, **options)
    writing = Writing("flagscale_perf.toy.recording", ToyPipeline)
    return Recorder.begin(
        writing, lambda: WriterTask.of(config.as_dict(), {}, directory, None), print, config.perf_debug
    )


if __name__ == "__main__":
    serve(ToyPipeline)
