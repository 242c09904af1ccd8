"""What readings of other tools' rules say of marks that a reader can add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.slow_training.rules import Marks, flagscale, stagefrontier, traceml

STEPS = list(range(1, 31))
EVEN = {"data_loading": 10, "forward": 30, "backward": 60, "exposed_grad_comm": 5, "optimizer_inner_step": 10}
PIPELINE = {"abstain": True}


def marks(late: dict[str, float], stages: int = 1, every: int = 1) -> Marks:
    """Four ranks, of which the second takes so much longer in these phases, in every n-th step. The others
    wait for it where gradients are exchanged, or in the next agreement.
    """
    phases = {name: np.full((len(STEPS), 4), float(ms)) for name, ms in EVEN.items()}
    is_late = np.array(STEPS) % every == 0
    for name, ms in late.items():
        phases[name][is_late, 1] += ms
        waiting = "exposed_grad_comm" if name != "optimizer_inner_step" else "exposed_stat_comm"
        waits = phases.setdefault(waiting, np.zeros((len(STEPS), 4)))
        waits[np.ix_(is_late, [0, 2, 3])] += ms
    return Marks([0, 1, 2, 3], STEPS, phases, stages)


def said(rank: int, phase: str | None, cost_ms: float) -> list[dict[str, Any]]:
    return [{"rank": rank, "phase": phase, "cost_ms": pytest.approx(cost_ms)}]


def test_traceml_names_who_waits_least_and_what_covers_most_of_the_wait() -> None:
    assert traceml(marks({"data_loading": 40})) == said(1, "data_loading", 40)
    assert traceml(marks({"forward": 40})) == said(1, "forward", 40)
    assert traceml(marks({"forward": 22, "data_loading": 18})) == said(1, None, 40)  # 55 % and 45 % of it
    assert traceml(marks({"forward": 12})) == []  # of a step of 127 ms
    assert traceml(marks({"backward": 40})) == []  # all take 105 ms in it, with the wait
    assert traceml(marks({"optimizer_inner_step": 40})) == []


def test_flagscale_names_who_takes_half_as_long_again_waiting_included() -> None:
    assert flagscale(marks({"forward": 400})) == []
    assert flagscale(marks({"optimizer_inner_step": 57})) == []  # 172 of 115 ms
    assert flagscale(marks({"optimizer_inner_step": 58})) == [{"rank": 1}]
    assert flagscale(marks({"optimizer_inner_step": 58}, stages=2)) == [{"rank": 1}]
    assert flagscale(marks({"optimizer_inner_step": 90}, every=7)) == []  # steps 10, 20, 30 are sampled


def test_stagefrontier_names_where_delay_first_appears() -> None:
    assert stagefrontier(marks({"backward": 40})) == said(1, "backward", 40)
    assert stagefrontier(marks({"optimizer_inner_step": 40})) == said(1, "optimizer", 40)
    assert stagefrontier(marks({"forward": 40}, every=10)) == said(1, "forward", 4)
    assert stagefrontier(marks({"forward": 2})) == []  # of a step of 117 ms
    two = marks({"data_loading": 40})
    two.phases["backward"][:, 2] += 40  # while rank 1 is as late already
    two.phases["exposed_grad_comm"][:, 2] -= 40
    assert stagefrontier(two) == said(1, "data_loading", 40)


@pytest.mark.parametrize("rule", [traceml, stagefrontier])
def test_rules_of_data_parallelism_abstain_in_pipelines(rule: Any) -> None:
    assert rule(marks({"forward": 40}, stages=2))["abstain"]
