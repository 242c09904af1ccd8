"""Rules of a toy instrument: order, what one explains of another, and what is not judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from graphlib import CycleError
from types import ModuleType

import pytest

from flagscale_perf.analysis.rules import Case, Change, Evidence, Finding, Rule, find, rule, rules_in
from flagscale_perf.spine.limits import Limit

LIMIT = Limit(3, "s", "ours: made up for this test")


@dataclass(frozen=True)
class Calls(Case):
    """Seconds that went into waiting, and how many calls there were."""

    wait_s: float
    retries_s: float = 0.0
    calls: int = 100

    @property
    def can_judge_speed(self) -> bool:
        return self.calls >= 10


def found(this: Rule[Calls], cost_s: float | None) -> Finding:
    evidence = [] if cost_s is None else [this.broke("waiting", cost_s, this.name)]
    return replace(this.finding(f"{this.name}: {cost_s} s", evidence, "calls/s"), cost_s=cost_s)


@rule(
    limits={"slow": LIMIT}, causes=["anything"], changes=[Change(["--timeout"], "raise it")], needs_speed=True
)
def slow(this: Rule[Calls], case: Calls) -> Finding | None:
    left_s = case.wait_s - case.explained_s
    return found(this, left_s) if this.exceeds(left_s, "slow") else None


@rule(limits={"retries": LIMIT}, causes=[], changes=[], explains={"slow"})
def retries(this: Rule[Calls], case: Calls) -> Finding | None:
    return found(this, case.retries_s) if this.exceeds(case.retries_s, "retries") else None


@rule(limits={}, causes=[], changes=[])
def doubt(this: Rule[Calls], case: Calls) -> Finding | None:
    return found(this, None)


RULES = [doubt, slow, retries]


def costs(case: Calls) -> list[tuple[str, float | None]]:
    return [(each.name, each.cost_s) for each in find(RULES, case)]


def test_the_costliest_comes_first_and_a_doubt_last() -> None:
    assert costs(Calls(wait_s=20.0, retries_s=4.0)) == [("slow", 16.0), ("retries", 4.0), ("doubt", None)]


def test_what_another_finding_explains_is_not_found_twice() -> None:
    assert costs(Calls(wait_s=20.0, retries_s=18.0)) == [("retries", 18.0), ("doubt", None)]
    assert costs(Calls(wait_s=4.0, retries_s=3.0)) == [("slow", 4.0), ("doubt", None)], (
        "not found, not explained"
    )


def test_speed_is_judged_only_where_there_is_enough_of_it() -> None:
    assert costs(Calls(wait_s=20.0, retries_s=4.0, calls=9)) == [("retries", 4.0), ("doubt", None)]


def test_a_finding_has_everything_that_its_rule_says() -> None:
    finding = find(RULES, Calls(wait_s=5.0))[0]
    assert finding == Finding(
        "slow",
        "slow: 5.0 s",
        5.0,
        None,
        None,
        "calls/s",
        [Evidence("waiting", 5.0, 3, "s", "ours: made up for this test")],
        None,
        None,
        [],
        ["anything"],
        [Change(["--timeout"], "raise it")],
    )


def test_a_figure_that_is_not_known_breaks_no_limit() -> None:
    assert not slow.exceeds(None, "slow") and not slow.exceeds(3.0, "slow") and slow.exceeds(3.1, "slow")


def test_rules_are_found_in_their_modules() -> None:
    module = ModuleType("toy")
    vars(module).update(one=slow, helper=found, two=retries, LIMIT=LIMIT)
    assert rules_in(module) == [slow, retries]


def test_rules_that_explain_each_other_or_nobody_are_refused() -> None:
    with pytest.raises(CycleError):
        find([replace(slow, explains=frozenset({"retries"})), retries], Calls(wait_s=1.0))
    with pytest.raises(KeyError, match="slow"):
        find([retries], Calls(wait_s=1.0))


def test_a_limit_that_counts() -> None:
    assert (LIMIT.count, Limit(8.0, "", "").count) == (3, 8)
