"""Slow ranks: place, phase, cause and cost."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.report.text import render
from flagscale_perf.training.analysis.blocks import report_of
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.records import CaptureRecord
from tests.fakes import MS
from tests.pipelines import Schedule
from tests.synthetic import Plan, cuts_records, node_record, ranks_record, write
from tests.unit.training.analysis.findings.planted import PLANTED, findings_of, when


def test_a_straggler_has_place_phase_and_what_was_observed(tmp_path: Path) -> None:
    (found,) = findings_of(PLANTED["straggler"][0], tmp_path)
    assert found.title.startswith("Rank 5 on node4 makes the others wait 199.0 ms each")
    assert found.title.endswith(" in 200 of 599 steps, in forward")
    (evidence,) = found.evidence
    longer = "199.0 ms longer than the others, last in 200 of 599 steps"
    assert evidence.figure.endswith(f"a step; {longer}; observed: clock capped by power)")
    assert (found.ranks, found.first_iteration, found.iteration) == ([5], 301, 500)
    assert "clock capped by power" not in found.causes
    assert (found.cost_s, found.gain_of) == (pytest.approx(40, rel=0.03), "tokens/s")


def test_a_rank_that_is_late_every_seventh_step_is_one_finding(tmp_path: Path) -> None:
    """Its cost, what to look at, and neither uneven steps nor a slow start beside it."""
    late = {"forward_ns": 250 * MS}
    cuts = cuts_records(lambda rank, step: late if rank == 1 and step % 7 == 0 else {})
    plan = Plan(
        extra=lambda n: when(n % 7 == 0, exposed_grad_comm_ns=250 * MS),
        also=[node_record(), ranks_record(600), *cuts],
    )
    (found,) = findings_of(plan, tmp_path)
    assert found.title.startswith("Rank 1 on node0 makes the others wait 2")
    assert found.title.endswith(" steps, every 7 steps, in forward")
    assert (found.name, found.pattern, found.ranks) == ("straggler", "periodic", [1])
    assert found.cost_s == pytest.approx(85 * 0.25, rel=0.05)
    assert found.causes == ["code that runs in these steps only"]
    assert found.changes[0].flags == ["--perf-profile-steps 7-18", "--perf-profile-ranks 1"]


def test_and_what_it_takes_of_the_start_is_no_slow_start(tmp_path: Path) -> None:
    late = {"forward_ns": 2000 * MS}
    cuts = cuts_records(lambda rank, step: late if rank == 1 and step % 7 == 0 else {}, steps=90)
    plan = Plan(
        extra=lambda n: when(n % 7 == 0, exposed_grad_comm_ns=2000 * MS) | when(n < 15, other_ns=300 * MS),
        also=[node_record(), ranks_record(90), *cuts],
        steps=90,
    )
    assert [found.name for found in findings_of(plan, tmp_path)] == ["straggler"]


def test_a_stretch_later_on_takes_nothing_of_a_slow_start(tmp_path: Path) -> None:
    """A rank is late in the steps 301 to 500: the first ones are slow of themselves."""
    plan = PLANTED["straggler"][0]
    start = replace(plan, extra=lambda n: plan.extra(n) | when(n < 100, other_ns=900 * MS))
    costs = {found.name: found.cost_s for found in findings_of(start, tmp_path)}
    # The usual step is that of the second half, which is 0.2 s longer by the late rank.
    assert costs["slow_start"] == pytest.approx(98 * (0.9 - 0.2), rel=0.02)


def test_what_a_straggler_makes_others_wait_is_no_communication(tmp_path: Path) -> None:
    names = [each.name for each in findings_of(PLANTED["straggler"][0], tmp_path)]
    assert "exposed_comm" not in names


def test_two_ranks_late_at_once_say_what_one_alone_gains(tmp_path: Path) -> None:
    cuts = cuts_records(
        lambda rank, step: when(rank == 2, data_loading_ns=100 * MS) | when(rank == 5, backward_ns=100 * MS)
    )
    plan = Plan(
        extra=lambda n: {"exposed_grad_comm_ns": 100 * MS}, also=[node_record(), ranks_record(600), *cuts]
    )
    found = findings_of(plan, tmp_path)
    assert {(each.name, *each.ranks) for each in found} == {("data_stall", 2), ("straggler", 5)}
    assert sum(each.cost_share or 0 for each in found) == pytest.approx(0.1 / 1.1, rel=0.05)
    assert all("without it alone a step gains" in each.evidence[0].figure for each in found)
    assert all("without all late ranks" in each.evidence[0].figure for each in found)


def test_ranks_that_are_late_in_turns_are_one_finding_of_no_rank(tmp_path: Path) -> None:
    draw = random.Random(1)
    last = [draw.randrange(8) for _ in range(601)]
    cuts = cuts_records(lambda rank, step: when(rank == last[step], data_loading_ns=200 * MS))
    plan = Plan(
        extra=lambda n: {"exposed_grad_comm_ns": 200 * MS}, also=[node_record(), ranks_record(600), *cuts]
    )
    (found,) = findings_of(plan, tmp_path)
    # The usual step has 1,000 ms, and noise: without the delay, too, one of the ranks comes last.
    step = "of each step of 1202.6 ms"
    assert found.title == f"Ranks are late in turns: the last costs 198.7 ms {step}, in data loading"
    assert (found.name, found.ranks, found.phase) == ("last_in_turns", [], "data_loading")
    assert found.cost_share == pytest.approx(0.2 / 1.2, rel=0.02)


LATE_IN_PIPELINE = Plan(
    facts={"pipeline_parallel": 2, "pipeline_schedule": "1f1b", "data_parallel": 4, "world_size": 8},
    extra=lambda n: {"exposed_grad_comm_ns": 100 * MS},
    also=[
        node_record(stages=[0] * 4 + [1] * 4),
        ranks_record(600),
        *cuts_records(lambda rank, step: when(rank == 1, forward_ns=100 * MS)),
    ],
)


def test_what_a_late_rank_of_a_pipeline_costs_is_what_captured_steps_gain_without_it(tmp_path: Path) -> None:
    """Rank 1 is 100 ms late, for which its stage waits. Other stages hold the step up as well."""
    schedule = Schedule(2, 4, batches=4, seed=1, least_ms=100, heavy=1, steps=8)
    even_ns = schedule.run()[1]
    for rank, phase, step, batch in list(schedule.times):
        if (rank, phase) == (1, "forward"):
            schedule.times[rank, phase, step, batch] += 25 * MS  # in each of four micro-batches
    captured, late_ns = schedule.run()
    gain_ms = (late_ns - even_ns) / 7 / MS
    also = [*LATE_IN_PIPELINE.also, CaptureRecord(7, 14, []), *captured]
    (found,) = findings_of(replace(LATE_IN_PIPELINE, also=also), tmp_path)
    assert 5 < gain_ms < 80, "a part of it is hidden"
    assert found.likely_gain == pytest.approx(late_ns / even_ns - 1, rel=0.2)
    assert found.least_gain is not None and found.gain is not None
    assert found.least_gain < found.likely_gain < found.gain
    assert found.what_if == "rank=1 forward=peers"
    assert found.gain_from == "replay of 7 captured steps, 8-14"
    assert found.title.startswith("Rank 1 on node0 costs 25.0 ms of each step of ")
    assert "its stage waits 99.0 ms; other stages would hide all but this" in found.evidence[0].figure
    assert not any("--perf-capture-steps" in flag for change in found.changes for flag in change.flags)


def test_and_its_row_says_what_the_job_gains(tmp_path: Path) -> None:
    schedule = Schedule(2, 4, batches=4, seed=1, least_ms=100, heavy=1, steps=8)
    for rank, phase, step, batch in list(schedule.times):
        schedule.times[rank, phase, step, batch] += 25 * MS * ((rank, phase) == (1, "forward"))
    also = [*LATE_IN_PIPELINE.also, CaptureRecord(7, 14, []), *schedule.run()[0]]
    path = write(replace(LATE_IN_PIPELINE, also=also), tmp_path)
    text = render(report_of(read_report(open_session(path))))
    row = "constant, last in 599 of 599 steps, the job gains 25.0 ms (25.0 ms to 25.0 ms) without; by the"
    assert row in " ".join(text.split())


def test_in_a_pipeline_without_captured_steps_they_are_what_would_tell(tmp_path: Path) -> None:
    (found,) = findings_of(LATE_IN_PIPELINE, tmp_path)
    assert found.gain == pytest.approx(0.1, rel=0.05)
    profile, capture, *_ = (change.flags for change in found.changes)
    assert profile == ["--perf-profile-steps 20-31", "--perf-profile-ranks 1"]  # says why it is late
    assert capture == ["--perf-capture-steps 20"]  # says what the job gains


@pytest.mark.parametrize(
    ("tokens", "batches", "cause", "advised"),
    [
        (2000, 1, "work", "batches of equal cost"),
        (2000, 2, "work", "as many micro-batches"),
        (1000, 1, "speed", "what else runs on its host"),
    ],
)
def test_unequal_work_is_balanced_and_never_laid_to_a_device(
    tokens: int, batches: int, cause: str, advised: str, tmp_path: Path
) -> None:
    """Rank 5 takes 200 ms longer: with twice as many tokens as the others, or with as many."""
    cuts = [
        replace(
            each,
            work=[
                value
                for rank in range(len(each.sizes))
                for value in ((tokens, -1, -1, batches) if each.ranks[rank] == 5 else (1000, -1, -1, 1))
            ],
        )
        for each in cuts_records(lambda rank, step: when(rank == 5, forward_ns=200 * MS))
    ]
    plan = Plan(
        facts={"work_flops": {"tokens": 6e9}},
        extra=lambda n: {"exposed_grad_comm_ns": 200 * MS},
        also=[node_record(), ranks_record(600), *cuts],
    )
    (found,) = findings_of(plan, tmp_path)
    assert (found.ranks, found.phase, found.cause) == ([5], "forward", cause)
    advice = " ".join(change.text for change in found.changes)
    assert ("has more work than the others, which wait" in found.title) == (cause == "work")
    others = {"batches of equal cost", "as many micro-batches", "what else runs on its host"} - {advised}
    assert advised in advice and not any(other in advice for other in others)
    may_be = " ".join(found.causes)
    assert ("documents" in may_be) == (advised == "batches of equal cost")
    assert ("1.00 times the others' work: all of it is slower" in found.evidence[0].figure) == (
        cause == "speed"
    )
