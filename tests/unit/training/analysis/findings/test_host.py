"""A host short of something is named, and nothing else is blamed for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.training.host import HostStretch
from flagscale_perf.training.rank_records import CutsRecord, NodeRecord
from tests.fakes import MS, SECOND
from tests.synthetic import STEPS, Plan, cuts_records, node_record, ranks_record
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


def test_a_containers_limit_is_named_as_what_it_is(tmp_path: Path) -> None:
    plan = late_data(300)
    limit = {"cpu_limit_milli": 2500}
    host = plan.host
    assert host is not None

    def throttled(periods: int, often: int) -> Plan:
        counts = {"cpu_periods": periods, "cpu_throttled_periods": often}
        return replace(plan, host=lambda n: host(n) | limit | {name: n * c for name, c in counts.items()})

    (found,) = findings_of(throttled(10, 4), tmp_path)
    assert found.name == "host_short_of_cpu"
    assert found.title == (
        "The container's CPU limit of 2.5 CPUs throttled it in 40.0 % of its periods: the training thread "
        "waits 23.0 % of the time"
    )
    assert found.causes == [
        "more threads, loader processes or ranks than the container's CPU limit has room for"
    ]
    for often in (0, 1):  # one period in ten is not why a thread waits for a quarter of the time
        (never,) = findings_of(throttled(10, often), tmp_path)
        assert never.title.startswith("The host is short of CPU")


@pytest.mark.parametrize(("cores", "flags"), [(2, []), (8, ["--num-workers 4"])])
def test_more_loaders_are_advised_where_there_are_cores_for_them(tmp_path: Path, cores, flags) -> None:
    (found,) = findings_of(late_data(None, cores), tmp_path)
    assert found.name == "data_stall"
    assert [flag for change in found.changes for flag in change.flags if "workers" in flag] == flags


@pytest.mark.parametrize(("run_delay_ms", "names"), [(250, {"host_short_of_cpu"}), (0, {"long_phase"})])
def test_a_phase_is_not_long_where_the_thread_had_no_cpu_for_as_long(
    tmp_path: Path, run_delay_ms: int, names: set[str]
) -> None:
    plan = Plan(
        extra=lambda n: {"optimizer_ns": 250 * MS}, host=lambda n: {"run_delay_ns": run_delay_ms * MS * n}
    )
    assert {each.name for each in findings_of(plan, tmp_path)} == names


def short_ranks(waits_s: Mapping[int, int]) -> Plan:
    """Two hosts of four ranks. Rank 5 works 200 ms of 1.2 s longer than the others; so many seconds of twelve
    have the training threads of these ranks no CPU.
    """
    hosts = [HostStretch(12 * SECOND, 4, waits_s.get(rank, 0) * SECOND) for rank in range(8)]
    read = dict(zip(HostStretch._fields, map(list, zip(*hosts, strict=True)), strict=True))
    whole = node_record()
    halves = [
        node_record(hostname=name, **{each: getattr(whole, each)[part] for each in LISTS})
        for name, part in (("node0", slice(4)), ("node1", slice(4, 8)))
    ]
    late = cuts_records(lambda rank, step: {"forward_ns": 200 * MS} if rank == 5 else {})
    return Plan(
        extra=lambda n: {"exposed_grad_comm_ns": 200 * MS},
        also=[*halves, ranks_record(STEPS, host=read), *late],
    )


LISTS = ("ranks", "pids", "devices", "stages")


def test_of_several_hosts_the_one_that_is_short_is_named_instead_of_its_late_rank(tmp_path: Path) -> None:
    (found,) = findings_of(short_ranks({5: 2}), tmp_path)
    assert (found.name, found.ranks) == ("host_short_of_cpu", [5])
    assert found.title == (
        "The host node1 is short of CPU: rank 5's training thread waits 16.7 % of the time for one of its"
        " 4 cores"
    )
    assert found.gain == pytest.approx(0.2, rel=0.05)


def test_a_late_rank_is_blamed_where_it_is_another_ones_host_that_is_short(tmp_path: Path) -> None:
    found = findings_of(short_ranks({2: 2}), tmp_path)
    assert {(each.name, tuple(each.ranks)) for each in found} == {
        ("host_short_of_cpu", (2,)),
        ("straggler", (5,)),
    }


def test_a_wait_that_all_ranks_of_all_hosts_have_alike_excuses_no_late_one(tmp_path: Path) -> None:
    found = findings_of(short_ranks(dict.fromkeys(range(8), 2)), tmp_path)
    assert {each.name for each in found} == {"host_short_of_cpu", "straggler"}


def test_a_late_rank_is_excused_by_no_more_than_it_waits_itself(tmp_path: Path) -> None:
    found = findings_of(short_ranks({2: 6, 5: 1}), tmp_path)
    assert {(each.name, tuple(each.ranks)) for each in found} == {
        ("host_short_of_cpu", (2, 5)),
        ("straggler", (5,)),
    }


@pytest.mark.parametrize(
    ("waits_s", "names"),
    [
        (
            dict.fromkeys(range(8), 2),
            {"host_short_of_cpu", "straggler"},
        ),  # it waits no longer than the others
        (dict.fromkeys(range(8), 1) | {5: 3}, {"host_short_of_cpu"}),
        (dict.fromkeys(range(8), 1) | {2: 3}, {"host_short_of_cpu", "straggler"}),
    ],
)
def test_on_one_host_a_late_rank_is_excused_by_what_it_waits_longer_than_the_others(
    tmp_path: Path, waits_s: dict[int, int], names: set[str]
) -> None:
    plan = short_ranks(waits_s)
    also = [node_record(), *(each for each in plan.also if not isinstance(each, NodeRecord))]
    assert {each.name for each in findings_of(replace(plan, also=also), tmp_path)} == names


def test_of_ranks_that_share_an_entry_none_is_named(tmp_path: Path) -> None:
    """Rank 0 waits for no CPU; which one of its entry does is not recorded."""
    read = dict(zip(HostStretch._fields, ([10 * SECOND] * 2, [4] * 2, [3 * SECOND, 0]), strict=False))
    times = {f"{each}_ns": [1000 * MS] * 2 for each in ("iteration", "work", "wait", "data")}
    record = ranks_record(STEPS, ranks_per_entry=4, memory_peak_bytes=[1] * 2, host=read, **times)
    plan = Plan(host=lambda n: {"cores": 4, "run_delay_ns": 0}, also=[node_record(), record])
    found = {each.name: each.title for each in findings_of(plan, tmp_path)}
    assert found["host_short_of_cpu"] == (
        "The host is short of CPU: the training thread of one of ranks 0 to 3 waits 30.0 % of the time for"
        " one of its 4 cores"
    )


def test_a_phase_of_rank_0_is_long_where_it_is_another_host_that_is_short(tmp_path: Path) -> None:
    whole = short_ranks({5: 2})
    without_ways = [each for each in whole.also if not isinstance(each, CutsRecord)]
    plan = replace(whole, extra=lambda n: {"optimizer_ns": 150 * MS}, also=without_ways)
    assert {each.name for each in findings_of(plan, tmp_path)} == {"host_short_of_cpu", "long_phase"}
