"""Phases: the table of names, the join with the step, the bubble, sums."""

from __future__ import annotations

import pytest

from flagscale_perf.device.marks import END, stop_of
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import (
    GROUPS,
    NUMBER_OF,
    OTHER,
    PHASE_OF,
    PHASE_OF_NUMBER,
    PHASES,
    PhaseJoin,
    PhaseSums,
    share,
    split_wait,
    total_of,
)
from flagscale_perf.training.records import PhaseRecord
from tests.fakes import MS, make_phases, make_step

PIPELINE = {"pipeline_parallel": 4, "pipeline_schedule": "1f1b"}


def test_the_table_has_the_record_s_fields_in_their_order() -> None:
    assert tuple(f"{phase}_ns" for phase in PHASES) == PhaseRecord._fields[1:]


def test_every_phase_is_in_one_group_and_all_but_the_derived_ones_have_a_timer() -> None:
    assert sorted(phase for names in GROUPS.values() for phase in names) == sorted(PHASES)
    assert list(GROUPS) == ["Data", "Forward", "Backward", "Pipe", "Comm", "Optim", "Other", "Between"]
    assert set(PHASES) - {PHASES[phase] for phase in PHASE_OF.values()} == {"other", "between_steps"}
    assert PHASES[OTHER:] == ("other", "between_steps")


def test_every_timer_has_a_number_that_fits_into_a_mark() -> None:
    assert sorted(NUMBER_OF.values()) == list(range(len(PHASE_OF))) and NUMBER_OF.keys() == PHASE_OF.keys()
    assert {timer: PHASE_OF_NUMBER[number] for timer, number in NUMBER_OF.items()} == PHASE_OF
    assert [PHASE_OF_NUMBER[phase] for phase in range(OTHER)] == list(range(OTHER)), "the phases' own"
    assert stop_of(len(NUMBER_OF) - 1) < END


@pytest.mark.parametrize(
    ("timer", "phase"),
    [
        ("batch-generator", "data_loading"),
        ("forward-compute", "forward"),
        ("backward-compute", "backward"),
        ("forward-send-backward-recv", "pipeline_recv_wait"),
        ("forward-backward-send-forward-backward-recv", "pipeline_recv_wait"),
        ("backward-send", "pipeline_send"),
        ("all-grads-sync", "exposed_grad_comm"),
        ("embedding-grads-all-reduce", "exposed_grad_comm"),
        ("params-all-gather", "exposed_param_comm"),
        ("optimizer-clip-main-grad", "optimizer_clip"),
        ("forward-backward", "forward_backward_other"),
    ],
)
def test_what_the_host_calls_it(timer: str, phase: str) -> None:
    assert PHASES[PHASE_OF[timer]] == phase


def test_phases_go_to_their_own_step_only() -> None:
    join = PhaseJoin(RunFacts.of(PIPELINE))
    join.hold(make_phases(3))
    assert join.take(make_step(4)) is None
    assert join.take(make_step(3)) is None
    join.hold(make_phases(5))
    joined = join.take(make_step(5))
    assert joined is not None and joined.record == make_phases(5)
    join.hold(make_phases(6, **dict.fromkeys(make_phases()._fields[1:])))
    assert join.take(make_step(6)) is None


def test_the_bubble_is_what_the_other_stages_need_for_a_micro_batch_each() -> None:
    # 2 + 18 + 36 ms for 8 micro-batches are 7 ms each; 3 stages before or behind this one
    record = make_phases(pipeline_recv_wait_ns=30 * MS)
    assert split_wait(record, microbatches=8, stages=4) == (21 * MS, 9 * MS)


def test_the_bubble_is_never_more_than_the_wait() -> None:
    assert split_wait(make_phases(), microbatches=2, stages=4) == (15 * MS, 0)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"pipeline_parallel": 1, "pipeline_schedule": None},
        {"pipeline_parallel": 4, "pipeline_schedule": "interleaved"},
        {"pipeline_parallel": "4", "pipeline_schedule": "1f1b"},
    ],
)
def test_without_a_pipeline_of_a_known_schedule_there_is_no_bubble(facts) -> None:
    join = PhaseJoin(RunFacts.of(facts))
    join.hold(make_phases(1))
    joined = join.take(make_step(1))
    assert joined is not None and (joined.bubble_ns, joined.imbalance_ns) == (None, None)


def test_a_host_that_names_no_waiting_has_no_bubble() -> None:
    assert split_wait(make_phases(pipeline_recv_wait_ns=None), microbatches=2, stages=4) == (None, None)


def test_sums_are_over_the_steps_that_have_phases() -> None:
    sums, join = PhaseSums(), PhaseJoin(RunFacts.of(PIPELINE))
    assert sums.over(0) == (None, None, None)
    for iteration in (1, 2):
        join.hold(make_phases(iteration, optimizer_clip_ns=None if iteration == 1 else 5))
        step = make_step(iteration, microbatches=8)
        joined = join.take(step)
        assert joined is not None
        sums.add(step, joined)
    phases_ns, bubble_ns, imbalance_ns = sums.over(2)
    assert phases_ns is not None
    assert (phases_ns["forward"], phases_ns["optimizer_clip"], phases_ns["exposed_param_comm"]) == (
        36 * MS,
        5,
        None,
    )
    assert (bubble_ns, imbalance_ns, sums.iteration_ns) == (30 * MS, 0, 200 * MS)
    assert sum(value or 0 for value in phases_ns.values()) == sums.iteration_ns + 5
    assert sums.over(3) == (None, None, None)


def test_shares_and_totals_of_what_is_not_known() -> None:
    assert [share(1, 4), share(None, 4), share(1, 0)] == [0.25, None, None]
    assert [total_of({"a": 1, "b": 2, "c": None}, names) for names in (("a", "b", "c"), ("c",), ("d",))] == [
        3,
        None,
        None,
    ]
