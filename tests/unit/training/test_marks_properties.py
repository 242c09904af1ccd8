"""Whatever a host names and however it nests the names, the phases of a step add up to the step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.device.marks import END, kind_of, time_of
from flagscale_perf.training.marks import STARTS, STOPS, MarksJoin, in_slots, own_times
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.records import MARKS_PER_SLOT, MarksRecord, PhaseRecord
from tests.fakes import make_step

BEGIN_NS = 10**15
BETWEEN = PHASES.index("between_steps")  # what is left over: no host names it
KINDS = [kind for kind in (*STARTS, *STOPS) if kind not in (END, STARTS[BETWEEN], STOPS[BETWEEN])]


@st.composite
def marks_of_a_step(draw: st.DrawFn) -> tuple[list[int], int]:
    """Any starts and stops, at times that never go back, and how long the step takes after the last of
    them.
    """
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=3 * MARKS_PER_SLOT))
    at_ns, marks = BEGIN_NS, []
    for kind in kinds:
        at_ns += draw(st.integers(0, 10**9))
        marks.append(kind + at_ns)
    return marks, at_ns - BEGIN_NS + draw(st.integers(0, 10**9))


@given(marks_of_a_step(), st.integers(0, 10**9))
def test_the_phases_add_up_to_the_step_and_the_iteration(
    step_marks: tuple[list[int], int], between_ns: int
) -> None:
    marks, train_step_ns = step_marks
    own_ns = own_times(marks, BEGIN_NS, BEGIN_NS + train_step_ns)
    assert sum(own_ns) == train_step_ns
    assert min(own_ns) >= 0
    step = make_step(
        7, start_ns=BEGIN_NS, train_step_ns=train_step_ns, iteration_ns=train_step_ns + between_ns
    )
    phases, same = joined(in_slots(7, marks), step)
    assert same is step
    if marks:
        assert sum(value or 0 for value in phases[1:]) == step.iteration_ns
        assert phases.between_steps_ns == between_ns
    else:
        assert phases[1:] == (None,) * len(PHASES)


@given(marks_of_a_step(), st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_device_s_step_ends_at_its_own_mark(
    step_marks: tuple[list[int], int], behind_ns: int, later_ns: int
) -> None:
    marks, train_step_ns = step_marks
    end_ns = BEGIN_NS + train_step_ns + behind_ns
    assert (
        sum(own_times([*marks, END + end_ns, STARTS[0] + end_ns + later_ns], BEGIN_NS, BEGIN_NS + 1))
        == end_ns - BEGIN_NS
    )


@given(marks_of_a_step(), st.data())
def test_one_lost_slot_of_marks_is_no_phases_rather_than_wrong_ones(
    step_marks: tuple[list[int], int], data: st.DataObject
) -> None:
    slots = in_slots(7, step_marks[0])
    lost = data.draw(st.integers(0, len(slots) - 1))
    kept = slots[:lost] + slots[lost + 1 :]
    step = make_step(7, start_ns=BEGIN_NS, train_step_ns=step_marks[1])
    *phases, _ = joined(kept, step)
    assert phases == ([PhaseRecord(7, *[None] * len(PHASES))] if kept else [])


@given(
    st.lists(st.integers(0, 2**63 - 1), max_size=3 * MARKS_PER_SLOT),
    st.integers(0, 2**57 - 1),
    st.integers(0, 2**57 - 1),
)
def test_marks_of_anybody_still_add_up(marks: list[int], start_ns: int, end_ns: int) -> None:
    marks = [mark for mark in marks if mark >> 57 < 2 * len(PHASES) and kind_of(mark) != END]
    assert [kind_of(mark) + time_of(mark) for mark in marks] == marks
    assert sum(own_times(marks, start_ns, end_ns)) == end_ns - start_ns


def joined(slots: list[MarksRecord], step):
    join = MarksJoin()
    for record in slots:
        assert join.take(record) == []
    return join.take(step)
