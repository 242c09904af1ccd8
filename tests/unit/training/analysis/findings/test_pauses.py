"""Pauses: their share, and for some how long they are, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.spine.live import BEGINS, ENDS, FindingRecord
from tests.fakes import MS, SECOND
from tests.synthetic import Plan
from tests.unit.training.analysis.findings.planted import PLANTED, findings_of, hanging


def test_a_pause_costs_its_whole_class(tmp_path: Path) -> None:
    (found,) = findings_of(PLANTED["checkpoint"][0], tmp_path)
    assert found.title.startswith("Training waits for checkpoints for 16.5 %")
    assert (found.cost_s, found.gain_of) == (pytest.approx(120), "tokens in the same time")


def test_a_start_or_an_end_of_a_short_run_may_be_a_large_share(tmp_path: Path) -> None:
    """A tenth of the time both, but below 300 s and 60 s."""
    plan = Plan(facts={"process_start_ns": -70 * SECOND}, after_ns=50 * SECOND)
    assert findings_of(plan, tmp_path) == []


def test_a_start_a_fifth_slower_is_a_drift_and_no_start(tmp_path: Path) -> None:
    def beginning(extra_ms: int) -> list[str]:
        plan = Plan(extra=lambda n: {"forward_ns": extra_ms * MS} if 2 <= n <= 250 else {})
        return [each.name for each in findings_of(plan, tmp_path)]

    assert beginning(600) == ["slow_start"]
    assert "slow_start" not in beginning(200)


@pytest.mark.parametrize(
    ("facts", "flags"),
    [
        ({}, ["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"]),
        ({"environment": {"TORCHINDUCTOR_CACHE_DIR": "/disk"}}, ["TRITON_CACHE_DIR"]),
        (
            {"environment": {"TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_me"}},
            ["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"],
        ),
        ({"rehearsal": True}, []),
    ],
)
def test_a_cache_of_kernels_is_advised_where_kernels_are_compiled(tmp_path: Path, facts, flags) -> None:
    plan = Plan(facts=facts, extra=lambda n: {"forward_ns": 2 * SECOND} if 2 <= n <= 40 else {})
    (found,) = findings_of(plan, tmp_path)
    caches = [flag for change in found.changes for flag in change.flags if flag.endswith("CACHE_DIR")]
    assert (found.name, caches) == ("slow_start", flags)
    assert ("kernels are compiled" in found.causes[0]) == bool(flags)


@pytest.mark.parametrize(
    ("ranks", "places", "waits"),
    [
        ([5], ["/job/train.py:12 step"], "it waits for rank 5, at /job/train.py:12 in step"),
        ([2, 3], [], "it waits for ranks 2, 3, of which nothing comes"),
        ([], [], "each rank waits for another"),
    ],
)
def test_a_hang_names_whom_it_waits_for_and_is_not_counted_twice(
    tmp_path: Path, ranks: list[int], places: list[str], waits: str
) -> None:
    (found,) = findings_of(Plan(also=[hanging(ranks, places)], after_ns=70 * SECOND), tmp_path)
    assert found.title == f"The job hangs after iteration 600: {waits}"
    assert (found.name, found.ranks, found.iteration) == ("hang", ranks, 600)
    assert found.cost_s == pytest.approx(70)


def test_a_damaged_hang_is_one_all_the_same(tmp_path: Path) -> None:
    damaged = FindingRecord("hang", BEGINS, "", evidence={"ranks": 5, "places": [None]}, iteration=600)
    (found,) = findings_of(Plan(also=[damaged], after_ns=70 * SECOND), tmp_path)
    assert found.title == "The job hangs after iteration 600: each rank waits for another"


def test_a_hang_that_is_over_is_none(tmp_path: Path) -> None:
    over = FindingRecord("hang", ENDS, "the hang is over")
    assert findings_of(Plan(also=[hanging([5], []), over], after_ns=SECOND), tmp_path) == []
