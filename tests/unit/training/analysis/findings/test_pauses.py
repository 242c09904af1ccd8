"""Pauses: their share, and for some how long they are, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import MS, SECOND
from tests.synthetic import Plan
from tests.unit.training.analysis.findings.planted import PLANTED, findings_of


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
