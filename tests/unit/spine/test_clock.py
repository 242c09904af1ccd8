"""The process's start on the monotonic clock."""

from __future__ import annotations

import builtins
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flagscale_perf.spine import clock
from flagscale_perf.spine.clock import NS_PER_S, Anchor, boot_id, monotonic_ns, process_start_ns
from tests.conftest import RunPython
from tests.machines import AHEAD_S, other_clock

REPO = Path(__file__).parents[3]


def test_both_clocks_are_read_at_one_instant_though_the_processor_is_taken_away_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the first look for 400 ns before the wall clock is read, in the last one for 300 ns behind it."""
    monotonic = iter([1000, 1402, 2000, 2004, 3000, 3302])
    wall = iter([1_401, 2_002, 3_002])
    monkeypatch.setattr(clock, "monotonic_ns", lambda: next(monotonic))
    monkeypatch.setattr(clock.time, "time_ns", lambda: next(wall))
    assert Anchor.now() == Anchor(2_002, 2_002)


def test_a_process_knows_when_it_began() -> None:
    started_ns = process_start_ns()
    assert started_ns is not None
    age_s = time.time() - psutil.Process().create_time()
    # psutil takes the kernel's start of the machine, known to a second
    assert (monotonic_ns() - started_ns) / NS_PER_S == pytest.approx(age_s, abs=1.5)
    assert process_start_ns() == pytest.approx(started_ns, abs=NS_PER_S)


@pytest.mark.parametrize("content", [None, "", "1 (python) S"])
def test_where_the_system_does_not_say_it_is_not_known(
    content: str | None, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    if content is not None:
        stat.write_text(content)
    original = builtins.open
    monkeypatch.setattr(builtins, "open", lambda path, *args, **kwargs: original(stat, *args, **kwargs))
    assert process_start_ns() is None


def test_the_start_is_taken_from_the_ticks_since_boot(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    stat.write_text("12 (py) R 1) S " + " ".join(str(n) for n in range(4, 22)) + " 100 23 24\n")
    original = builtins.open
    monkeypatch.setattr(builtins, "open", lambda path, *args, **kwargs: original(stat, *args, **kwargs))
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    started_ns = process_start_ns()
    # tick 100 of 100 a second: one second after the machine began
    assert started_ns is not None
    age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - (monotonic_ns() - started_ns)
    assert age_ns == pytest.approx(NS_PER_S, abs=NS_PER_S)


def test_a_boot_is_another_one_where_its_clock_is(run_python: RunPython) -> None:
    """Both processes run on this machine, the second one in a time namespace."""
    script = "from flagscale_perf.spine.clock import boot_id, monotonic_ns; print(boot_id(), monotonic_ns())"
    here = run_python("-c", script).stdout.split()
    assert here[:-1] == (boot_id() or "").split()
    done = subprocess.run(
        [*other_clock(), sys.executable, "-c", script], capture_output=True, text=True, cwd=REPO, check=True
    )
    there = done.stdout.split()
    assert int(there[-1]) - int(here[-1]) > AHEAD_S * NS_PER_S
    assert there[0] == here[0] and there[:-1] != here[:-1]


def test_without_a_linux_proc_there_is_no_boot_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "BOOT_ID", tmp_path / "missing")
    assert boot_id() is None
