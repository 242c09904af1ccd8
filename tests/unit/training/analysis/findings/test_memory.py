"""Memory that is full, or will be."""

from __future__ import annotations

from pathlib import Path

from tests.synthetic import STEPS, Plan, node_record, ranks_record
from tests.unit.training.analysis.findings.planted import findings_of


def test_memory_that_grows_towards_its_end_is_a_risk(tmp_path: Path) -> None:
    found = findings_of(Plan(step=lambda n: {"memory_peak_bytes": 10**11 + n * 10**7}), tmp_path)
    assert [each.title for each in found] == [
        (
            "Memory of rank 0's device is 75.2 % full at peak and grows: out of memory in 3500 steps at "
            "the latest if it goes on like this"
        )
    ]


def test_the_fullest_rank_is_named(tmp_path: Path) -> None:
    peaks = [110 * 10**9] * 7 + [140 * 10**9]
    also = [node_record(), *(ranks_record(n, memory_peak_bytes=peaks) for n in range(10, STEPS, 10))]
    (found,) = findings_of(Plan(also=also), tmp_path)
    assert (found.title, found.ranks) == ("Memory of rank 7's device is 99.3 % full at peak", [7])


def test_retries_in_every_interval_are_a_risk_of_unknown_cost(tmp_path: Path) -> None:
    (found,) = findings_of(Plan(step=lambda n: {"memory_retries": n}), tmp_path)
    assert (found.name, found.cost_s, found.gain) == ("allocator_retries", None, None)
    assert (found.first_iteration, found.iteration, found.ranks) == (11, STEPS, [0])
