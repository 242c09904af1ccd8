"""Each row of the table, with findings that belong together, and with such that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flagscale_perf.analysis.instrument import installed
from flagscale_perf.analysis.links import (
    LINKS,
    Row,
    linked,
    of_a_late_step,
    of_a_step,
    of_all_steps,
    of_the_time,
)
from flagscale_perf.analysis.rules import Finding, consequence
from flagscale_perf.profile.analysis import findings as of_profiles
from flagscale_perf.rpc.analysis import findings as of_calls
from flagscale_perf.trace.analysis import findings as of_queues
from flagscale_perf.training.analysis.findings.findings import RULES as OF_TRAININGS

PAIRS = [(row, upper, lower) for row in LINKS for upper in row.of for lower in row.by]


def finding(key: str, **fields: Any) -> Finding:
    instrument, name = key.split(".")
    made = Finding(name, name, 10.0, 0.1, 0.1, "", [], None, None, [], [], [])
    return replace(made, instrument=instrument, **fields)


def upper(key: str, **fields: Any) -> Finding:
    """30 ms of each step of rank 1 from 3 to 60, in forward: 10 s, a fifth of the steps."""
    own = {"step_ms": 30.0, "ranks": [1], "first_iteration": 3, "iteration": 60, "cost_of_steps": 0.2}
    return finding(key, **own | {"phase": "forward"} | fields)


def lower(key: str, part: float, **fields: Any) -> Finding:
    """So much of that, from 20 to 31."""
    own = {"step_ms": part * 30.0, "ranks": [1], "first_iteration": 20, "iteration": 31}
    return finding(key, **own | {"cost_s": part * 10.0, "cost_of_steps": part * 0.2} | fields)


@pytest.mark.parametrize(("row", "of", "by"), PAIRS)
def test_what_explains_four_fifths_is_the_cause_and_stands_in_what_it_explains(
    row: Row, of: str, by: str
) -> None:
    (one,) = linked([lower(by, 0.9), upper(of)], [row])
    assert (one.name, [link.finding.name for link in one.links]) == (of.split(".")[1], [by.split(".")[1]])
    assert one.links[0].is_cause and one.links[0].share == pytest.approx(0.9)


@pytest.mark.parametrize(("row", "of", "by"), PAIRS)
def test_what_explains_less_is_an_observation_and_stays(row: Row, of: str, by: str) -> None:
    first, second = linked([lower(by, 0.5), upper(of)], [row])
    assert (first.name, second.name) == (of.split(".")[1], by.split(".")[1])
    assert [(link.is_cause, link.share) for link in first.links] == [(False, pytest.approx(0.5))]
    assert first.title == of.split(".")[1]  # no cause stands in it


@pytest.mark.parametrize(("row", "of", "by"), PAIRS)
def test_nothing_is_linked_that_concerns_other_steps_or_explains_next_to_nothing(
    row: Row, of: str, by: str
) -> None:
    later = lower(by, 0.9, first_iteration=61, iteration=90)
    assert [one.links for one in linked([later, upper(of)], [row])] == [(), ()]
    assert [one.links for one in linked([lower(by, 0.05), upper(of)], [row])] == [(), ()]
    unknown = lower(by, 0.9, step_ms=None, cost_s=None, cost_of_steps=None)
    assert [one.links for one in linked([unknown, upper(of)], [row])] == [(), ()]


def test_every_name_of_the_table_is_a_rule_of_its_instrument() -> None:
    rules = {
        "training": OF_TRAININGS,
        "profile": of_profiles.RULES,
        "rpc": of_calls.RULES,
        "trace": of_queues.RULES,
    }
    known = {f"{instrument}.{rule.name}" for instrument, own in rules.items() for rule in own}
    assert {name for row in LINKS for name in (*row.of, *row.by)} <= known
    assert {name.split(".")[0] for name in known} <= {*installed()}


def test_a_step_of_another_rank_or_phase_explains_nothing() -> None:
    late = upper("training.straggler")
    assert of_a_step(late, lower("profile.slow_on_rank", 0.9, phase="forward")) == pytest.approx(0.9)
    assert of_a_step(late, lower("profile.slow_on_rank", 0.9, phase="backward")) is None
    assert of_a_late_step(late, lower("profile.late_rank", 0.9, phase="communication")) == pytest.approx(0.9)
    assert of_a_late_step(late, lower("profile.late_rank", 0.9, ranks=[0])) is None
    assert of_a_late_step(late, lower("profile.late_rank", 0.9, ranks=[])) is None  # whose is not known


def test_findings_without_steps_concern_all_of_them() -> None:
    whole = lower("training.host_short_of_cpu", 0.9, first_iteration=None, iteration=None)
    assert of_the_time(upper("training.slowdown"), whole) == pytest.approx(0.9)
    assert of_all_steps(upper("training.exposed_comm"), whole) == pytest.approx(0.9)


def test_a_cause_may_have_a_cause_and_its_place_stands_in_the_title() -> None:
    found = [
        finding("rpc.server", cost_s=9.0),
        finding("trace.slow_stage", cost_s=9.5),
        finding("training.data_stall", cost_s=10.0),
    ]
    (one,) = linked(found)
    stage = next(link.finding for link in one.links if link.finding.instrument == "trace")
    assert [link.finding.name for link in stage.links] == ["server"]
    where = lower("profile.slow_on_rank", 1.0, where="layer 1, Python", phase="forward")
    (one,) = linked([where, upper("training.straggler")])
    assert one.title == "straggler: in layer 1, Python: +30.0 ms, steps 20 to 31"


def test_what_costs_most_for_certain_comes_first() -> None:
    found = [
        finding("training.slowdown", cost_s=24.0, least_s=1.3),
        finding("training.straggler", cost_s=1.6),
        finding("rpc.many_calls", cost_s=None),
        finding("trace.errors", cost_s=2.0),
    ]
    assert [one.name for one in linked(found)] == ["errors", "straggler", "slowdown", "many_calls"]


def test_of_several_sessions_of_an_instrument_each_may_explain() -> None:
    second = replace(lower("profile.slow_on_rank", 0.9, phase="forward"), instrument="profile 2")
    (one,) = linked([second, upper("training.straggler")])
    assert [link.finding.instrument for link in one.links] == ["profile 2"]


def test_a_cause_that_costs_more_than_its_consequence_in_one_instrument_stands_for_itself() -> None:
    unit = finding("trace.straggling_unit", cost_s=4.0)
    small, large = finding("trace.bound", cost_s=1.0), finding("trace.queue_overhead", cost_s=4.0)
    found = linked([unit, consequence(small, [(unit, 0.95)])])
    assert [one.name for one in found] == ["straggling_unit", "bound"]
    assert [link.finding.name for link in found[1].links] == ["straggling_unit"]
    (one,) = linked([unit, consequence(large, [(unit, 0.95)])])
    assert one.name == "queue_overhead"
