"""A writer that does not keep up with what comes, or cannot begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.sinks.csv import CsvSink
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.recording.pipeline import Sources, TrainingPipeline
from flagscale_perf.writer import drain as drain_module
from tests.unit.writer.test_drain import finish, make_drain, put, records_in, ring, said

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


def test_it_gives_way_once_its_header_is_on_disk(ring: Ring, tmp_path: Path, said: list[str]) -> None:
    begun: list[int] = []
    task = make_drain(ring, tmp_path / "logs", said)._task
    drain = drain_module.Drain(
        ring,
        task,
        TrainingPipeline(task, Sources()),
        pytest.fail,
        lambda: begun.append(len(records_in(tmp_path / "logs"))),
    )
    (tmp_path / "logs").write_text("in the way")
    drain._journal.complain = lambda text, *more: None
    assert not drain.cycle()
    assert begun == []
    (tmp_path / "logs").unlink()
    drain.cycle()
    drain.cycle()
    assert begun == [1]
    finish(ring, drain)
