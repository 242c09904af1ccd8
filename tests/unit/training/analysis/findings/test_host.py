"""A host short of something is named, and nothing else is blamed for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import MS
from tests.synthetic import Plan
from tests.unit.training.analysis.findings.planted import findings_of


def late_data(run_delay_ms: int | None, cores: int = 2) -> Plan:
    """300 ms of loading data in each step, in so many of which the thread had no CPU."""
    return Plan(
        facts={"arguments": {"num_workers": 2}},
        extra=lambda n: {"data_loading_ns": 300 * MS},
        host=lambda n: {"cores": cores, "run_delay_ns": (run_delay_ms or 0) * MS * n},
    )


def test_late_data_is_the_hosts_doing_where_the_thread_had_no_cpu(tmp_path: Path) -> None:
    (found,) = findings_of(late_data(300), tmp_path)
    assert found.name == "host_short_of_cpu"
    assert found.gain == pytest.approx(0.3, rel=0.05)
    assert found.title == (
        "The host is short of CPU: the training thread waits 23.0 % of the time for one of its 2 cores"
    )


@pytest.mark.parametrize(("cores", "flags"), [(2, []), (8, ["--num-workers 4"])])
def test_more_loaders_are_advised_where_there_are_cores_for_them(tmp_path: Path, cores, flags) -> None:
    (found,) = findings_of(late_data(None, cores), tmp_path)
    assert found.name == "data_stall"
    assert [flag for change in found.changes for flag in change.flags if "workers" in flag] == flags
