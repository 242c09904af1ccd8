"""The summary's file: early, then now and then, and at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.sinks import summary
from flagscale_perf.sinks.summary import PERIOD_NS, SummarySink
from flagscale_perf.spine.records import RunEnd
from tests.fakes import make_context, make_header, make_step, sample_run
from tests.golden import golden


def test_it_is_replaced_when_due_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10**12]
    monkeypatch.setattr(summary, "monotonic_ns", lambda: now[0])
    sink = SummarySink(make_context(make_header(), tmp_path, print))

    def last_iteration_after(record) -> int | None:
        if record:
            sink.write(record)
        sink.flush()
        return json.loads(sink.path.read_text())["session_info"]["last_iteration"]

    assert last_iteration_after(None) is None
    assert last_iteration_after(make_step(1)) is None
    now[0] += PERIOD_NS
    assert last_iteration_after(make_step(2)) == 2
    assert last_iteration_after(make_step(3)) == 2
    assert last_iteration_after(RunEnd("completed", 0, 3, 0)) == 3


def test_its_content_is_the_whole_summary(tmp_path: Path) -> None:
    header, *records = sample_run()
    sink = SummarySink(make_context(header, tmp_path, print))
    for record in records:
        sink.write(record)
    sink.flush()
    assert (tmp_path / "perf_summary_20240129_103000.json").read_text() == golden("perf_summary.json")
