"""What the system says about a process."""

from __future__ import annotations

import builtins
import os
import subprocess
from pathlib import Path

import psutil
import pytest

from flagscale_perf.spine.processes import ProcessStat, control_groups, process_stat


def test_this_process() -> None:
    me = process_stat(os.getpid())
    assert me is not None
    assert me == process_stat("self")
    assert me[:3] == (os.getppid(), os.getpgrp(), os.getsid(0))
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    started_s = me.start_ticks / os.sysconf("SC_CLK_TCK")
    age_s = uptime_s - started_s
    assert 0 <= age_s == pytest.approx(psutil.time.time() - psutil.Process().create_time(), abs=1.5)


def test_a_process_that_ended_is_none_also_before_it_is_waited_for() -> None:
    with subprocess.Popen(["true"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_stat(child.pid) is None
    assert process_stat(child.pid) is None


def test_a_name_with_parentheses_and_spaces_shifts_no_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(tmp_path / "stat", "12 (py) R 1) S " + " ".join(str(n) for n in range(4, 25)) + "\n", monkeypatch)
    assert process_stat(12) == ProcessStat(parent=4, group=5, session=6, start_ticks=22)


@pytest.mark.parametrize("content", ["", "1 (python) S", "1 (python) S 2 x 3" + " 0" * 20])
def test_what_is_not_understood_is_an_error(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(tmp_path / "stat", content, monkeypatch)
    with pytest.raises(ValueError):
        process_stat(12)


def show(stat: Path, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every file that is opened be this one."""
    stat.write_text(content)
    original = builtins.open
    monkeypatch.setattr(builtins, "open", lambda path, *args, **kwargs: original(stat, *args, **kwargs))


def test_control_groups_from_the_innermost_out_of_both_versions() -> None:
    mounts = Path("/mounts")
    found = control_groups("memory", "4:cpu,cpuacct:/x\n3:memory:/docker/x\n", mounts)
    assert [*found] == [mounts / "memory" / each for each in ("docker/x", "docker", "")]
    of_cpu = control_groups("cpu", "4:cpu,cpuacct:/x\n3:memory:/docker/x\n", mounts)
    assert [*of_cpu] == [mounts / each for each in ("cpu,cpuacct/x", "cpu,cpuacct", "cpu/x", "cpu")]
    unified = control_groups("cpu", "0::/pod\n", mounts)
    assert [*unified] == [mounts / each for each in ("pod", "", "unified/pod", "unified")]
