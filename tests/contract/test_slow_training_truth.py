"""What is planted in a slow training, and how its truth is made of the host's own steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.slow_training import inside
from benchmarks.slow_training.costs import truth_of
from benchmarks.slow_training.plants import (
    ALWAYS,
    DEALT,
    EVEN,
    LONG,
    MIXED,
    PHASES,
    SIZES_MS,
    WORKS,
    Delay,
    Planted,
    documents_of,
    drawn,
    is_on,
    part_of,
)
from benchmarks.slow_training.record import _by_phase

FLOPS = {"tokens": 3 * 5120, "squared_lengths": 3 * 32, "expert_tokens": 0}


def steps_of(plan: Planted, usual_ms: float = 100.0) -> list[tuple[int, float]]:
    """A job that gets slower by 20 % and is held up in single steps, with what the plan costs."""
    found = []
    for step in range(1, ALWAYS + plan.switched + 1):
        on = [
            part_of(delay, step, plan.seed) * delay.ms
            for delay in plan.delays
            if is_on(step, delay.group, plan.groups)
        ]
        held_up = 300.0 if step % 17 == 0 else 0.0
        found.append((step, usual_ms * (1 + step / 700) + (step % 3) + held_up + sum(on)))
    return found


@pytest.mark.parametrize(
    ("pattern", "share"),
    [("constant", 1), ("rotating", 1), ("growing", 61 / 120), ("periodic", 1 / 6), ("bursts", 0.2)],
)
def test_a_cost_is_known_on_a_machine_that_drifts(pattern: str, share: float) -> None:
    late = (0, 1) if pattern == "rotating" else (1,)
    plan = Planted("x", pattern, 2, 7, delays=(Delay("forward", 40, late, pattern),))
    truth = truth_of(plan, steps_of(plan), 0.0)
    (plant,) = truth["plants"]
    assert truth["cost_ms"] == plant["cost_ms"] == pytest.approx(40 * share, abs=1.5)
    assert abs(truth["cost_ms"] - 40 * share) <= truth["within_ms"] + 0.5
    assert (plant["rank"], plant["cause"]) == (None if pattern == "rotating" else 1, "speed")


def test_two_are_priced_alone_and_together() -> None:
    """Where one comes after the other, each gains what it is late; where both are late at once, nothing."""
    delays = (Delay("backward", 40, (1,)), Delay("optimizer_inner_step", 20, (3,), group=1))
    plan = Planted("x", "pair_other", 4, 7, delays=delays, switched=160)
    truth = truth_of(plan, steps_of(plan), 0.0)
    assert truth["cost_ms"] == pytest.approx(60, abs=2)
    assert [plant["alone_ms"] for plant in truth["plants"]] == pytest.approx([40, 20], abs=3)
    both = [replace(delay, ms=30) for delay in delays]
    same = replace(plan, delays=tuple(both))
    steps = [
        (step, 100 + 30.0 * any(is_on(step, group, 2) for group in (0, 1)))
        for step in range(1, ALWAYS + same.switched + 1)
    ]
    truth = truth_of(same, steps, 0.0)
    assert truth["cost_ms"] == pytest.approx(30)
    assert [plant["alone_ms"] for plant in truth["plants"]] == [0, 0]
    assert [plant["cost_ms"] for plant in truth["plants"]] == [15, 15]


def test_work_and_speed_have_their_shares() -> None:
    plan = Planted(
        "x",
        "documents_and_slow",
        2,
        7,
        delays=(Delay("forward", 40, (1,)),),
        more_work="documents_and_slow",
        worker=1,
    )
    work_ms = inside.more_work_ms(plan, FLOPS)
    long, even = (5120 * 128 + 32 * sum(each**2 for each in lengths) for lengths in (LONG, EVEN))
    assert work_ms == pytest.approx(120 * (long / even - 1))  # two micro-batches of 20 and 40 ms
    truth = truth_of(plan, steps_of(plan), work_ms)
    assert truth["work_share"] == pytest.approx(work_ms / (work_ms + 40), abs=1e-3)
    forward, backward = truth["plants"]
    assert (forward["phase"], backward["phase"], backward["cause"]) == ("forward", "backward", "work")
    assert forward["work_share"] == pytest.approx(work_ms / 3 / (work_ms / 3 + 40), abs=1e-3)
    assert forward["cost_ms"] + backward["cost_ms"] == pytest.approx(truth["cost_ms"], abs=0.02)


def test_documents_fill_a_sample_and_are_even_in_the_mean() -> None:
    assert {sum(lengths) for lengths in (*DEALT, MIXED)} == {128}
    squares = [sum(each**2 for each in lengths) for lengths in DEALT]
    assert sum(squares) == 4 * sum(each**2 for each in MIXED)
    plan = Planted("x", "uneven_packing", 4, 7, more_work="uneven_packing")
    dealt = [[documents_of(plan, step, rank) for rank in range(4)] for step in range(1, 41)]
    assert all(Counter(step) == Counter(DEALT) for step in dealt)
    assert min(Counter(step.index(LONG) for step in dealt).values()) > 3  # none of the four is always last


def test_a_seed_draws_every_kind_and_twenty_healthy_runs() -> None:
    plans = drawn(3)
    assert drawn(3) == plans != drawn(4)
    assert len({plan.name for plan in plans}) == len(plans)
    assert {(plan.kind, int(plan.delays[0].ms)) for plan in plans if plan.kind in PHASES} == {
        (phase, size) for phase in PHASES for size in SIZES_MS
    }
    assert {plan.more_work for plan in plans} >= set(WORKS)
    healthy = [plan for plan in plans if plan.kind == "healthy"]
    assert (len(healthy), sum(plan.busy for plan in healthy)) == (20, 5)


def test_a_row_has_a_phase_with_its_first_moment() -> None:
    spans = [("forward", 5), ("pipeline_recv_wait", 7), ("forward", 3), ("exposed_grad_comm", 2)]
    assert _by_phase(spans) == {
        "forward": (8, 0, 0),
        "pipeline_recv_wait": (0, 7, 5),
        "exposed_grad_comm": (0, 2, 15),
    }
