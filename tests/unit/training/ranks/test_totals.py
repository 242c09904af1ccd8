"""What the summary says of all ranks."""

from __future__ import annotations

from dataclasses import asdict, replace

from flagscale_perf.training.host import HostStretch
from flagscale_perf.training.rank_records import NodeRecord, RanksRecord, StragglerRecord
from flagscale_perf.training.ranks.totals import MAX_STRAGGLERS, RankTotals
from tests.fakes import MS, make_step

GB = 10**9
STRETCH = RanksRecord(
    first_iteration=5,
    iteration=24,
    ranks_per_entry=1,
    iteration_ns=[100 * MS, 100 * MS, None],
    work_ns=[60 * MS, 80 * MS, None],
    wait_ns=[40 * MS, 20 * MS, None],
    data_ns=[1 * MS, 1 * MS, None],
    memory_peak_bytes=[3 * GB, 7 * GB, None],
    silent=[2],
    silent_count=1,
)
SLOW = StragglerRecord(
    41,
    55,
    False,
    [1],
    "b",
    "NVIDIA H200",
    0,
    "forward",
    31 * MS,
    375 * MS,
    "peers",
    None,
    "clock capped by power",
)


def totals_of(*records, size=3):
    totals = RankTotals(size)
    for record in records:
        totals.add(record)
    return asdict(totals.result())


def test_all_ranks_of_a_run() -> None:
    # rank 0: 60 and 60 ms, rank 1: 80 and 120 ms, rank 2: 70 ms once
    second = replace(
        STRETCH,
        work_ns=[60 * MS, 120 * MS, 70 * MS],
        iteration_ns=[150 * MS] * 3,
        wait_ns=[90 * MS, 30 * MS, 80 * MS],
    )
    second = replace(second, memory_peak_bytes=[4 * GB, None, 5 * GB], silent=[], silent_count=0)
    nodes = [NodeRecord("a", [0], [1], ["CPU"], [0]), NodeRecord("b", [1, 2], [1, 2], ["CPU"] * 2, [0, 0])]
    assert totals_of(
        *nodes, STRETCH, SLOW, make_step(1), second, replace(SLOW, iteration=90, is_over=True)
    ) == {
        "nodes": 2,
        "heard": 3,
        "silent_count": 0,
        "silent": [],
        "peak_memory_gb": 7.0,
        "peak_memory_ranks": [1],
        "slowest_ranks": [1],
        "slowest_work_ms": 100.0,
        "median_work_ms": 70.0,
        "work_spread": 100 / 70 - 1,
        "wait_share": 260 / 650,
        "straggler_count": 1,
        "stragglers": [
            {
                "first_iteration": 41,
                "iteration": 90,
                "is_over": True,
                "ranks": [1],
                "hostname": "b",
                "device": "NVIDIA H200",
                "stage": 0,
                "phase": "forward",
                "excess_ms": 31.0,
                "against": "peers",
                "cause": None,
                "observed": "clock capped by power",
            }
        ],
    }


def test_what_is_not_known_is_null() -> None:
    empty = totals_of(size=None)
    assert empty.keys() == totals_of(STRETCH).keys()
    assert (empty.pop("straggler_count"), empty.pop("stragglers")) == (0, [])
    assert set(empty.values()) == {None}
    without_phases = totals_of(replace(STRETCH, work_ns=[None] * 3, wait_ns=[None] * 3))
    assert [without_phases[key] for key in ("heard", "slowest_ranks", "work_spread", "wait_share")] == [
        2,
        None,
        None,
        None,
    ]


def test_ranks_that_share_an_entry_are_named_together() -> None:
    ranks = totals_of(replace(STRETCH, ranks_per_entry=2), size=4)
    assert (ranks["peak_memory_ranks"], ranks["slowest_ranks"]) == ([2, 3], [2, 3])
    assert len(totals_of(replace(STRETCH, ranks_per_entry=4096), size=None)["slowest_ranks"]) == 64


def test_hosts_of_many_stretches_are_added_up() -> None:
    totals = RankTotals(3)
    for number in range(100):
        host = {
            "host_ns": [1, 2, None],
            "cores": [8, 8, None],
            "run_delay_ns": [number % 2, None, None],
            "memory_available_bytes": [abs(number - 40) + 5, None, None],
        }
        totals.add(replace(STRETCH, host=host))
    assert totals.hosts() == [
        HostStretch(host_ns=100, cores=8, run_delay_ns=50, memory_available_bytes=5),
        HostStretch(host_ns=200, cores=8),
        HostStretch(),
    ]


def test_stragglers_are_listed_up_to_a_bound_and_all_counted() -> None:
    ranks = totals_of(*(replace(SLOW, first_iteration=n) for n in range(MAX_STRAGGLERS + 5)))
    assert (ranks["straggler_count"], len(ranks["stragglers"])) == (MAX_STRAGGLERS + 5, MAX_STRAGGLERS)


def test_a_stretch_is_known_by_its_begin_its_measure_and_all_its_ranks() -> None:
    others = [replace(SLOW, against="past"), replace(SLOW, ranks=[1, 2]), replace(SLOW, first_iteration=46)]
    over = replace(SLOW, iteration=90, is_over=True)
    totals = RankTotals(3)
    for record in (SLOW, *others, over):
        totals.add(record)
    assert totals.stragglers() == [over, *others]


def test_ranks_have_the_place_that_was_recorded_last() -> None:
    totals = RankTotals(3)
    totals.add(NodeRecord("a", [0, 1], [1, 2], ["CPU", "CPU"], [0, 0]))
    totals.add(NodeRecord("b", [1, 2], [3, 4], ["NVIDIA H200"], [1]))
    assert totals.nodes() == [("a", [0], ["CPU"]), ("b", [1, 2], ["NVIDIA H200"])]
    assert (totals.places[1].stage, totals.places[2].device) == (1, None), (
        "the record is too short for rank 2"
    )


def test_a_job_of_another_size_begins_anew() -> None:
    smaller = replace(
        STRETCH,
        work_ns=[50 * MS],
        iteration_ns=[100 * MS],
        wait_ns=[50 * MS],
        data_ns=[MS],
        memory_peak_bytes=[2 * GB],
        silent=[],
        silent_count=0,
    )
    ranks = totals_of(STRETCH, smaller, size=1)
    assert (ranks["slowest_work_ms"], ranks["peak_memory_gb"], ranks["wait_share"]) == (50.0, 2.0, 0.5)
