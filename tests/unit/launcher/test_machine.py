"""The kernel's files about memory, as machines and containers have them."""

from pathlib import Path

import pytest

from flagscale_perf.launcher.machine import Free, Kills, Machine

GB = 10**9
MEMINFO = "MemTotal:       24684092 kB\nMemFree:  1000 kB\nMemAvailable:   20000000 kB\n"


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path / "proc", tmp_path / "cgroup")


def write(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_nothing_is_known_where_nothing_can_be_read(machine) -> None:
    assert (machine.free(), machine.kills()) == (None, Kills(None, None))


def test_a_machine_without_limits(machine, tmp_path) -> None:
    write(
        tmp_path, {"proc/meminfo": MEMINFO, "proc/vmstat": "pgpgin 5\noom_kill 7\n", "proc/self/cgroup": ""}
    )
    assert machine.free() == Free(20_480_000_000, "MemAvailable of /proc/meminfo")
    assert machine.kills() == Kills(None, 7)


def test_limit_of_a_group_around_this_one_version_2(machine, tmp_path) -> None:
    write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/slurm/job_1/step\n",
            "cgroup/slurm/job_1/step/memory.max": "max\n",
            "cgroup/slurm/job_1/step/memory.current": "5\n",
            "cgroup/slurm/job_1/step/memory.events": "low 0\noom 3\noom_kill 2\n",
            "cgroup/slurm/job_1/memory.max": f"{8 * GB}\n",
            "cgroup/slurm/job_1/memory.current": f"{5 * GB}\n",
            "cgroup/slurm/job_1/memory.stat": f"anon 1\ninactive_file {2 * GB}\n",
        },
    )
    assert machine.free() == Free(5 * GB, f"the limit in {tmp_path}/cgroup/slurm/job_1/memory.max")
    assert machine.kills() == Kills(2, None)


def test_a_container_of_version_1_sees_its_group_at_the_mount_itself(machine, tmp_path) -> None:
    write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "4:cpu:/docker/abc\n3:memory:/docker/abc\n0::/\n",
            "cgroup/memory/memory.limit_in_bytes": f"{4 * GB}\n",
            "cgroup/memory/memory.usage_in_bytes": f"{1 * GB}\n",
            "cgroup/memory/memory.stat": "total_inactive_file 500\n",
            "cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        },
    )
    assert machine.free() == Free(
        3 * GB + 500, f"the limit in {tmp_path}/cgroup/memory/memory.limit_in_bytes"
    )
    assert machine.kills() == Kills(1, None)


def test_the_largest_number_of_version_1_is_no_limit(machine, tmp_path) -> None:
    write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "3:memory:/\n",
            "cgroup/memory/memory.stat": "",
            "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "cgroup/memory/memory.usage_in_bytes": "4096\n",
        },
    )
    assert machine.free() == Free(20_480_000_000, "MemAvailable of /proc/meminfo")


def test_this_machine_says_something() -> None:
    free = Machine().free()
    assert free is not None and free.free_bytes > 0
