"""Which step is what."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.profile.options import Kind, Schedule, Steps
from flagscale_perf.spine.errors import PerfError
from tests.profiled_events import options_of


def kinds(text: str, clean: int, has_detail: bool, iterations: range) -> str:
    """A letter for each iteration."""
    schedule = Schedule(Steps.parse(text), clean, has_detail)
    found = ""
    for iteration in iterations:
        position = schedule.position(iteration)
        found += "-" if position is None else schedule.kind(position).name[0]
    return found


def test_clean_steps_lie_between_profiled_ones_and_the_one_with_shapes_is_last() -> None:
    assert kinds("3-5", 1, True, range(1, 12)) == "--PCPCPCDII"
    assert kinds("3-5", 0, False, range(1, 8)) == "--PPPII"
    assert kinds("2-3/8", 2, True, range(1, 18)) == "-PCCPCCDIPCCPCCDI"
    assert Kind.IGNORED.name[0] == "I"


def test_a_window_that_would_run_into_the_next_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PerfError, match="is 7 steps long; write /7 or more"):
        Schedule.of(options_of(tmp_path, "20-22/5"))
    assert Schedule.of(options_of(tmp_path, "20-22/7")) is not None
