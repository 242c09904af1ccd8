"""The process's start on the monotonic clock."""

from __future__ import annotations

import builtins
import time

import psutil
import pytest

from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns, process_start_ns


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
