"""Marks in, phases out: every figure here is worked out by hand."""

import pytest

from flagscale_perf.device.marks import END, kind_of, time_of
from flagscale_perf.training.marks import STARTS, STOPS, MarksJoin, in_slots, own_times
from flagscale_perf.training.phases import PHASE_OF_NUMBER, PHASES
from flagscale_perf.training.records import MARKS_PER_SLOT, MarksRecord, PhaseRecord
from tests.fakes import make_event, make_step

FORWARD, BACKWARD, DATA, AROUND, OPTIMIZER = map(
    PHASES.index, ("forward", "backward", "data_loading", "forward_backward_other", "optimizer")
)


def mark_of(now, phase):
    """A start for a phase, a stop for its complement."""
    return now + (STARTS[phase] if phase >= 0 else STOPS[~phase])


def marks_of(*pairs):
    return tuple(mark_of(now, phase) for now, phase in pairs)


def named(own_ns):
    return {PHASES[phase]: value for phase, value in enumerate(own_ns) if value}


STEP = marks_of(
    (1010, AROUND),
    (1020, FORWARD),
    (1025, DATA),
    (1055, ~DATA),
    (1100, ~FORWARD),
    (1110, BACKWARD),
    (1310, ~BACKWARD),
    (1315, ~AROUND),
    (1320, OPTIMIZER),
    (1400, ~OPTIMIZER),
)
OWN = {
    "other": 10 + 5 + 4,
    "forward_backward_other": 10 + 10 + 5,
    "forward": 5 + 45,
    "data_loading": 30,
    "backward": 200,
    "optimizer": 80,
}


def test_the_time_between_two_marks_belongs_to_the_innermost_open_phase():
    own_ns = own_times(STEP, 1000, 1404)
    assert (named(own_ns), sum(own_ns)) == (OWN, 404)


def test_a_mark_tells_its_time_and_its_kind_after_four_years_too():
    for now in (0, 4 * 365 * 86_400 * 10**9):
        for kind in (*STARTS, *STOPS):
            assert (time_of(now + kind), kind_of(now + kind)) == (now, kind)
            assert 0 <= now + kind < 2**63
    assert len({*STARTS, *STOPS}) == 2 * len(PHASE_OF_NUMBER)


@pytest.mark.parametrize(
    ("marks", "own"),
    [
        # a stop without a start: only a mark
        ([(4, ~FORWARD), (6, BACKWARD), (9, ~BACKWARD)], {"other": 7, "backward": 3}),
        # an inner phase left open ends with the outer one
        ([(1, FORWARD), (2, DATA), (5, ~FORWARD)], {"other": 6, "forward": 1, "data_loading": 3}),
        # a phase inside itself
        ([(1, FORWARD), (2, FORWARD), (5, ~FORWARD), (9, ~FORWARD)], {"other": 2, "forward": 8}),
        # never stopped
        ([(4, FORWARD)], {"other": 4, "forward": 6}),
    ],
)
def test_unbalanced_names_still_add_up(marks, own):
    own_ns = own_times(marks_of(*marks), 0, 10)
    assert (named(own_ns), sum(own_ns)) == (own, 10)


def test_a_device_ends_the_step_at_its_own_time():
    own_ns = own_times([*marks_of((4, FORWARD)), 25 + END], 0, 10)
    assert named(own_ns) == {"other": 4, "forward": 21}


STEP_RECORD = make_step(7, start_ns=1000, train_step_ns=404, iteration_ns=450)
UNMEASURED = PhaseRecord(7, *[None] * len(PHASES))


def joined(*records):
    join = MarksJoin()
    return [made for record in records for made in join.take(record)]


def test_phases_come_just_before_their_step_and_add_up_to_it():
    phases, step = joined(*in_slots(7, STEP), STEP_RECORD)
    own = {f"{name}_ns": value for name, value in OWN.items()} | {"between_steps_ns": 46}
    assert (phases, step) == (
        PhaseRecord(**dict.fromkeys(PhaseRecord._fields) | own | {"iteration": 7}),
        STEP_RECORD,
    )
    assert sum(value or 0 for value in phases[1:]) == 450


def test_many_marks_take_several_slots_and_none_gets_lost():
    pairs = [(1000 + n, FORWARD if n % 2 else ~FORWARD) for n in range(2 * MARKS_PER_SLOT + 1)]
    slots = in_slots(7, marks_of(*pairs))
    assert [(slot.total, len(slot.marks)) for slot in slots] == [(57, 28), (57, 28), (57, 1)]
    phases, _ = joined(*slots, STEP_RECORD)
    assert (phases.forward_ns, phases.other_ns) == (28, 404 - 28)


@pytest.mark.parametrize("lost", range(3))
def test_where_a_slot_is_lost_no_phase_is_known(lost):
    slots = in_slots(7, marks_of(*[(1000, FORWARD)] * 60))
    assert joined(*slots[:lost], *slots[lost + 1 :], STEP_RECORD) == [UNMEASURED, STEP_RECORD]


def test_a_step_whose_marks_could_not_be_taken_has_unknown_phases():
    assert in_slots(7, None) == [MarksRecord(7, 0, ())]
    assert joined(*in_slots(7, None), STEP_RECORD) == [UNMEASURED, STEP_RECORD]


def test_marks_of_a_step_that_was_lost_count_for_no_other():
    assert joined(*in_slots(6, STEP), STEP_RECORD) == [STEP_RECORD]
    (phases, _) = joined(*in_slots(6, STEP), *in_slots(7, STEP), STEP_RECORD)
    assert phases.forward_ns == OWN["forward"]
    assert joined(*in_slots(7, STEP), *in_slots(7, STEP), STEP_RECORD) == [
        UNMEASURED,
        STEP_RECORD,
    ]  # done again after a restart


def test_other_records_pass_and_do_not_part_marks_from_their_step():
    event, skipped = make_event(), make_step(8)
    made = joined(event, *in_slots(7, STEP), event, STEP_RECORD, skipped)
    assert [type(record).__name__ for record in made] == [
        "EventRecord",
        "EventRecord",
        "PhaseRecord",
        "StepRecord",
        "StepRecord",
    ]
