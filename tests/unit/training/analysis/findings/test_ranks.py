"""Slow ranks: place, phase, cause and cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import MS
from tests.synthetic import STEPS, Plan
from tests.unit.training.analysis.findings.planted import PLANTED, findings_of, slow_rank, when


def test_a_straggler_has_place_phase_and_cause(tmp_path: Path) -> None:
    (found,) = findings_of(PLANTED["straggler"][0], tmp_path)
    assert (
        found.title == "Rank 5 on node4 makes the others wait 200.0 ms of each step of 1200.0 ms, in forward"
    )
    assert (found.ranks, found.first_iteration, found.iteration) == ([5], 301, 500)
    assert found.causes[0] == "clock capped by power"
    assert (found.cost_s, found.gain_of) == (pytest.approx(40), "tokens/s")


def test_one_that_is_not_over_costs_until_now(tmp_path: Path) -> None:
    (found,) = findings_of(
        Plan(
            extra=lambda n: when(n > 300, exposed_grad_comm_ns=200 * MS),
            also=[slow_rank(iteration=310, is_over=False)],
        ),
        tmp_path,
    )
    assert (found.iteration, found.cost_s) == (STEPS, pytest.approx(60))


def test_what_a_straggler_makes_others_wait_is_no_communication(tmp_path: Path) -> None:
    names = [each.name for each in findings_of(PLANTED["straggler"][0], tmp_path)]
    assert "exposed_comm" not in names


def test_ranks_slower_than_before_are_said_to_be(tmp_path: Path) -> None:
    (found,) = findings_of(
        Plan(
            extra=lambda n: when(n > 300, exposed_grad_comm_ns=200 * MS),
            also=[slow_rank(iteration=STEPS, against="past")],
        ),
        tmp_path,
    )
    assert found.title == (
        "Rank 5 on node4 works 200.0 ms longer than before, of each step of 1200.0 ms, in forward"
    )


def test_bursts_in_a_phase_explain_that_it_is_longer_than_before(tmp_path: Path) -> None:
    """All ranks had them, and were compared with their own past within a burst."""
    bursts = {start + step for start in (60, 101, 133, 201, 258) for step in range(6)}
    planted = Plan(
        extra=lambda n: when(n in bursts, forward_ns=2000 * MS),
        also=[slow_rank(first_iteration=201, iteration=210, phase="forward", against="past")],
    )
    assert [each.name for each in findings_of(planted, tmp_path)] == ["slow_steps"]


def test_what_a_straggler_takes_of_a_slow_start_is_not_in_its_cost(tmp_path: Path) -> None:
    """Of 600 steps the first 100 take a second more; rank 5 is 200 ms slow in all of them."""
    (found, _) = findings_of(
        Plan(
            extra=lambda n: {"exposed_grad_comm_ns": 200 * MS} | when(n <= 100, forward_ns=1000 * MS),
            also=[slow_rank(first_iteration=1, iteration=STEPS)],
        ),
        tmp_path,
    )
    assert (found.name, found.cost_s) == ("straggler", pytest.approx(500 * 0.2))
