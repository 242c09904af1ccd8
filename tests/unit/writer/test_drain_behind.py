"""A writer that does not keep up with what comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.sinks.csv import CsvSink
from flagscale_perf.spine.ring import Ring
from flagscale_perf.writer import drain as drain_module
from tests.unit.writer.test_drain import finish, make_drain, put, ring, said

__all__ = ["ring", "said"]  # fixtures


def test_a_writer_that_is_behind_flushes_its_views_between_batches(
    ring: Ring, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view refuses what it is given when too much waits in it, and with steps coming without end a cycle
    would go on for ever.
    """
    monkeypatch.setattr(drain_module, "BATCH", 8)
    shown: list[int] = []
    flush = CsvSink.flush

    def flush_and_count(sink: CsvSink) -> None:
        flush(sink)
        (path,) = tmp_path.glob("perf_intervals_*.csv")
        shown.append(len(path.read_text().splitlines()) - 1)

    monkeypatch.setattr(CsvSink, "flush", flush_and_count)
    drain = make_drain(ring, tmp_path, said, perf_csv=True, perf_log_interval=1)
    put(ring, *range(1, 21))
    assert drain.cycle()
    assert shown == [8, 16, 20]
    finish(ring, drain)
