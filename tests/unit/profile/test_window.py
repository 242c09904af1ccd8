"""What is kept of a window."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.profile.options import Kind, ProfileOptions
from flagscale_perf.profile.records import StepRecord, WindowRecord
from flagscale_perf.profile.window import Reduction, Step, Store, Window
from flagscale_perf.spine.peers.records import NameRecord


def test_a_window_without_rows_says_why() -> None:
    kept: list[object] = []
    window = Window([Step(Kind.CLEAN, 4, "train", 1000, 50, 2, 64)])
    Reduction(Store(kept.extend), ProfileOptions(None, Path("/nowhere")), "nothing ran").reduce(window)
    name, step, why, record = kept
    assert (name, why) == (NameRecord(0, 1, "train"), NameRecord(0, 2, "nothing ran"))
    assert isinstance(step, StepRecord) and isinstance(record, WindowRecord)
    assert (step.number, step.window, step.iteration, step.is_profiled, step.total_ns) == (2, 1, 4, 0, 50)
    assert (record.number, record.start_ns, record.total_ns, record.steps, record.clean_steps) == (
        1,
        1000,
        50,
        0,
        1,
    )
    assert record.reason == 2
