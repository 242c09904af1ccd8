"""The CPU limit of a container, from files as kernels write them, and of a real control group."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flagscale_perf.spine.processes import CGROUP, control_groups
from flagscale_perf.training.cpu_limit import CpuLimit, read_limit


def made(group: Path, **files: str) -> None:
    group.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (group / name.replace("__", ".")).write_text(content)


V2_STAT = "usage_usec 7\nuser_usec 5\nsystem_usec 2\nnr_periods {}\nnr_throttled {}\nthrottled_usec 9\n"
V1_STAT = "nr_periods {}\nnr_throttled {}\nthrottled_time 9000\n"


def test_version_2_with_the_limit_on_a_group_around_it(tmp_path: Path) -> None:
    made(tmp_path, cpu__stat="usage_usec 7\n")
    made(tmp_path / "pod", cpu__stat=V2_STAT.format(100, 12), cpu__max="200000 100000\n")
    made(tmp_path / "pod/one", cpu__stat=V2_STAT.format(0, 0), cpu__max="max 100000\n")
    groups = [*control_groups("cpu", "0::/pod/one\n", tmp_path)][:3]
    assert groups == [tmp_path / "pod/one", tmp_path / "pod", tmp_path]
    assert read_limit(groups) == CpuLimit(2000, 100, 12)


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
def test_version_1_takes_the_tightest(tmp_path: Path, mount: str) -> None:
    root = tmp_path / mount
    made(root, cpu__stat=V1_STAT.format(0, 0), cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    around = {"cpu__cfs_quota_us": "400000\n", "cpu__cfs_period_us": "100000\n"}
    made(root / "docker", cpu__stat=V1_STAT.format(50, 1), **around)
    own = {"cpu__cfs_quota_us": "75000\n", "cpu__cfs_period_us": "50000\n"}
    made(root / "docker/x", cpu__stat=V1_STAT.format(40, 20), **own)
    membership = "12:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/system.slice\n"
    assert read_limit(control_groups("cpu", membership, tmp_path)) == CpuLimit(1500, 40, 20)


def test_inside_a_container_the_mount_is_the_group(tmp_path: Path) -> None:
    made(tmp_path, cpu__stat=V2_STAT.format(10, 3), cpu__max="50000 100000\n")
    assert read_limit(control_groups("cpu", "0::/../../kubepods/podx\n", tmp_path)) == CpuLimit(500, 10, 3)


def test_without_a_limit_there_is_none(tmp_path: Path) -> None:
    made(tmp_path / "a", cpu__stat=V2_STAT.format(0, 0), cpu__max="max 100000\n")
    assert read_limit(control_groups("cpu", "0::/a\n", tmp_path)) is None
    assert read_limit(control_groups("cpu", "", tmp_path)) is None


@pytest.mark.skipif(
    not os.access(CGROUP / "cpu" / "cpu.cfs_quota_us", os.W_OK)
    and not (CGROUP / "cpu" / "cgroup.procs").exists(),
    reason="no control group for CPU can be made here",
)
def test_a_real_limit_throttles_a_busy_process() -> None:
    group = CGROUP / "cpu" / f"flagscale_perf_test_{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text("20000")
        (group / "cpu.cfs_quota_us").write_text("5000")
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        (group / "cgroup.procs").write_text(str(busy.pid))
        groups = [*control_groups("cpu", Path(f"/proc/{busy.pid}/cgroup").read_text())]
        while (limit := read_limit(groups)) is None or limit.throttled_periods < 3:
            assert busy.poll() is None
        busy.kill()
        busy.wait()
        assert (limit.milli_cpus, limit.periods >= limit.throttled_periods) == (250, True)
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()
