"""Each of many runs has one planted cause, and that is what is found first, with the gain that removing it
would bring.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.training.analysis.findings.findings import RULES
from flagscale_perf.training.analysis.fold import read_report
from tests.fakes import MS, SECOND
from tests.synthetic import STEPS, Plan, node_record, ranks_record, write
from tests.unit.training.analysis.findings.planted import PLANTED, findings_of, when


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_cause_is_found_first_with_its_gain(name: str, tmp_path: Path) -> None:
    plan, true_gain = PLANTED[name]
    first = findings_of(plan, tmp_path)[0]
    assert first.name == name
    assert first.evidence and first.causes and first.changes
    if true_gain is not None:
        assert first.gain == pytest.approx(true_gain, rel=0.2)


def test_every_kind_of_finding_is_planted() -> None:
    assert set(PLANTED) == {rule.name for rule in RULES}


def test_a_healthy_run_has_none(tmp_path: Path) -> None:
    report = read_report(open_session(write(Plan(), tmp_path)))
    assert (report.findings, report.unjudged) == (
        [],
        ["other ranks than the first: the file has nothing of them"],
    )


def test_even_ranks_have_none(tmp_path: Path) -> None:
    assert (
        findings_of(Plan(also=[node_record(), *(ranks_record(n) for n in range(10, STEPS, 10))]), tmp_path)
        == []
    )


def test_ranks_that_share_cores_are_said_to(tmp_path: Path) -> None:
    facts = {"device": "CPU (rehearsal)", "rehearsal": True}
    also = [node_record(), ranks_record(STEPS)]
    plan = Plan(facts=facts, host=lambda n: {"cores": 2, "run_delay_ns": 0}, also=also)
    own_cores = replace(plan, host=lambda n: {"cores": 8, "run_delay_ns": 0})
    said = "what a rank would cost on cores of its own: 8 ranks share 2 cores"
    assert any(each.startswith(said) for each in read_report(open_session(write(plan, tmp_path))).unjudged)
    assert not any("cores" in each for each in read_report(open_session(write(own_cores, tmp_path))).unjudged)


def test_the_costlier_one_comes_first_and_risks_last(tmp_path: Path) -> None:
    plan = Plan(
        step=lambda n: (
            {"memory_peak_bytes": 138 * 10**9}
            | when(n % 100 == 0, eval_ns=15 * SECOND, checkpoint_ns=20 * SECOND)
        ),
        extra=lambda n: {"data_loading_ns": 60 * MS},
    )
    found = findings_of(plan, tmp_path)
    assert [each.name for each in found] == ["checkpoint", "evaluation", "data_stall", "memory_limit"]
    assert [None if each.cost_s is None else round(each.cost_s) for each in found] == [120, 90, 39, None]


def test_a_few_steps_say_nothing_about_speed(tmp_path: Path) -> None:
    path = write(PLANTED["data_stall"][0], tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:40]))
    report = read_report(open_session(path))
    assert (report.findings, report.unjudged[0]) == ([], "the speed of the steps: 11 are too few")


def test_every_limit_has_a_source() -> None:
    assert [name for rule in RULES for name, limit in rule.limits.items() if len(limit.source) < 20] == []


def test_what_names_no_cause_and_costs_next_to_nothing_is_a_line_below(tmp_path: Path) -> None:
    slow = set(random.Random(1).sample(range(20, 600), 40))
    plan = Plan(extra=lambda n: when(n in slow, forward_ns=120 * MS, backward_ns=120 * MS))
    report = read_report(open_session(write(plan, tmp_path)))  # 9.6 of 612 s
    assert report.findings == []
    assert report.unjudged[0].startswith("Steps are uneven: 40 of 599 take 1.2 times the usual or more")
    assert report.unjudged[0].endswith(" of the wall time, and no cause can be named")
