"""A watch for a job that stands still, where no thread can be started for it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.recording.pipeline import make_pipeline
from flagscale_perf.writer.instrument import Remark
from flagscale_perf.writer.task import Parent
from tests.unit.writer.test_drain import make_drain, ring, said

__all__ = ["ring", "said"]


def test_a_thread_that_cannot_be_started_is_told_of_once_and_costs_no_more(
    ring: Ring, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    task = make_drain(ring, tmp_path, said)._task
    pipeline = make_pipeline(task, Parent(os.getpid(), lambda _: None))
    note = Remark("standstill", "no look-out for a job that stands still: can't start new thread")
    assert note in pipeline.collect()
    assert note not in pipeline.collect()
    assert pipeline._sources.stood() == []
