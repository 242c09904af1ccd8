"""Every second in one class, by hand: a session, its warm-up, what was lost, and sessions one after
another.
"""

from __future__ import annotations

from dataclasses import fields

import pytest

from flagscale_perf.spine.records import RunEnd
from flagscale_perf.training.goodput import Goodput, SessionGoodput
from flagscale_perf.training.records import Outcome
from tests.fakes import (
    MS,
    SECOND,
    make_event,
    make_facts,
    make_header,
    make_phases,
    make_skipped_data,
    make_step,
)


def session(*records, kept_until=None, **facts):
    folded = SessionGoodput(make_header(facts=make_facts(**facts)), kept_until)
    for record in records:
        folded.add(record)
    return folded


def end_at(seconds):
    """The end of a session whose header says 10:30:00 at the monotonic clock's zero."""
    return RunEnd("completed", make_header().start_wall_ns + int(seconds * SECOND), 0, 0)


def steps(first, last, start_s, **overrides):
    """Steps of 1 s, one after the other."""
    return [
        make_step(n, start_ns=(start_s + n - first) * SECOND, iteration_ns=SECOND, **overrides)
        for n in range(first, last + 1)
    ]


def adds_up(goodput):
    parts = [getattr(goodput, field.name) for field in fields(goodput) if field.name != "wall_ns"]
    return sum(part for part in parts if part is not None) == goodput.wall_ns


def test_a_session_from_its_process_start_to_its_end() -> None:
    warmup = make_step(1, warmup=1, start_ns=3 * SECOND, iteration_ns=5 * SECOND)
    paused = make_step(
        5, start_ns=11 * SECOND, iteration_ns=SECOND, eval_ns=4 * SECOND, checkpoint_ns=2 * SECOND
    )
    skipped = make_step(6, start_ns=18 * SECOND, iteration_ns=SECOND, outcome=int(Outcome.UPDATE_SKIPPED))
    passed_over = make_skipped_data(8, 2, start_ns=19 * SECOND, iteration_ns=SECOND // 2)
    goodput = session(warmup, *steps(2, 4, 8), paused, skipped, passed_over, end_at(20)).result()
    # The process began at -2 s: 5 s until the first step, of which 4 s more than usual; 19.5 to 20 s is
    # nothing's.
    assert goodput == Goodput(
        wall_ns=22 * SECOND,
        startup_ns=9 * SECOND,
        productive_ns=5 * SECOND,
        evaluation_ns=4 * SECOND,
        checkpoint_ns=2 * SECOND,
        data_stall_ns=None,
        late_ns=None,
        lost_ns=1500 * MS,
        idle_ns=500 * MS,
    )
    assert goodput.ettr == 5 / 22
    assert goodput.as_dict() == {
        "wall_s": 22.0,
        "startup_s": 9.0,
        "productive_s": 5.0,
        "evaluation_s": 4.0,
        "checkpoint_s": 2.0,
        "data_stall_s": None,
        "late_s": None,
        "lost_s": 1.5,
        "idle_s": 0.5,
        "ettr": 5 / 22,
    }


def test_a_slow_start_is_start_up_as_far_as_it_takes_longer_than_usual() -> None:
    """5 s to the first step, which takes 2 s more; nine steps of 3 s, one of them in vain, 30 of 1 s. The
    slow ones load data for 2 s, the others for 0.1 s.
    """
    records = [make_step(1, warmup=1, start_ns=3 * SECOND, iteration_ns=3 * SECOND)]
    for number in range(2, 41):
        is_slow, start_s = number <= 10, 6 + 3 * min(number - 2, 9) + max(0, number - 11)
        records += [
            make_phases(number, data_loading_ns=2 * SECOND if is_slow else SECOND // 10),
            make_step(
                number,
                start_ns=start_s * SECOND,
                iteration_ns=(3 if is_slow else 1) * SECOND,
                outcome=int(Outcome.UPDATE_SKIPPED if number == 4 else Outcome.TRAINED),
            ),
        ]
    goodput = session(*records, end_at(63)).result()
    assert goodput == Goodput(
        wall_ns=65 * SECOND,
        startup_ns=(5 + 2 + 9 * 2) * SECOND,
        productive_ns=(1 + 8 + 30 - 3) * SECOND,
        data_stall_ns=3 * SECOND,
        late_ns=None,
        lost_ns=SECOND,
        idle_ns=0,
    )
    assert adds_up(goodput)


def test_what_the_writer_tells_after_the_end_is_no_time_of_the_session() -> None:
    ended = [*steps(1, 4, 3), end_at(20)]
    late = make_event("failure", at_ns=90 * SECOND)
    assert session(*ended, late).result() == session(*ended).result()
    assert session(*steps(1, 4, 3), late, end_at(20)).result() == session(*ended).result()


def test_data_passed_over_before_the_first_step_is_lost_and_no_startup() -> None:
    goodput = session(make_skipped_data(3, 3, start_ns=0, iteration_ns=SECOND), *steps(4, 5, 1)).result()
    assert (goodput.startup_ns, goodput.lost_ns, goodput.productive_ns, goodput.idle_ns) == (
        2 * SECOND,
        SECOND,
        2 * SECOND,
        0,
    )


def test_before_the_first_step_all_is_startup() -> None:
    goodput = session(make_event(at_ns=4 * SECOND)).result()
    assert (goodput.wall_ns, goodput.startup_ns, goodput.ettr) == (6 * SECOND, 6 * SECOND, 0.0)
    assert session(process_start_ns=None).result().ettr is None


@pytest.mark.parametrize("start_ns", [None, 1, "0", -(10**400)])
def test_a_process_start_that_cannot_be_is_not_believed(start_ns) -> None:
    assert session(*steps(1, 2, 1), process_start_ns=start_ns).result().startup_ns == SECOND


def test_of_a_warmup_alone_nobody_knows_what_is_usual() -> None:
    goodput = session(make_step(1, warmup=1, start_ns=0, iteration_ns=SECOND)).result()
    assert (goodput.startup_ns, goodput.productive_ns) == (3 * SECOND, 0)


def test_a_quick_warmup_is_productive() -> None:
    goodput = session(make_step(1, warmup=1, start_ns=0, iteration_ns=SECOND // 2), *steps(2, 4, 1)).result()
    assert (goodput.startup_ns, goodput.productive_ns, goodput.idle_ns) == (
        2 * SECOND,
        3500 * MS,
        SECOND // 2,
    )


def test_iterations_that_were_done_again_are_lost() -> None:
    warmup = make_step(1, warmup=1, start_ns=0, iteration_ns=3 * SECOND)
    folded = session(warmup, *steps(2, 6, 3), kept_until=4)
    goodput = folded.result()
    assert (folded.redone, goodput.lost_ns, goodput.productive_ns, goodput.startup_ns) == (
        2,
        2 * SECOND,
        4 * SECOND,
        4 * SECOND,
    )
    everything = session(warmup, *steps(2, 6, 3), kept_until=0).result()
    # no later step tells what is usual when all of them are lost: the first one counts as start-up
    assert (everything.lost_ns, everything.productive_ns, everything.startup_ns) == (
        5 * SECOND,
        0,
        5 * SECOND,
    )
    assert adds_up(goodput) and adds_up(everything)


def test_time_without_records_is_idle() -> None:
    goodput = session(*steps(1, 2, 0), *steps(9, 9, 7)).result()
    assert (goodput.wall_ns, goodput.idle_ns) == (10 * SECOND, 5 * SECOND)


def test_a_file_whose_steps_overlap_still_adds_up() -> None:
    goodput = session(*steps(1, 5, 0), *steps(1, 5, 0)).result()
    assert (goodput.wall_ns, goodput.idle_ns, adds_up(goodput)) == (12 * SECOND, 0, True)


def loading(iteration, loading_ms, **overrides):
    """A step of 1 s with its phases, which come first."""
    phases = make_phases(iteration, data_loading_ns=None if loading_ms is None else loading_ms * MS)
    return phases, make_step(iteration, start_ns=(iteration - 1) * SECOND, iteration_ns=SECOND, **overrides)


def test_loading_data_in_iterations_that_trained_is_a_stall() -> None:
    skipped = loading(5, 100, outcome=int(Outcome.UPDATE_SKIPPED))
    records = [
        *loading(1, 900, warmup=1),
        *loading(2, 200),
        *loading(3, None),
        *loading(4, 300),
        *skipped,
        *loading(6, 700),
    ]
    goodput = session(*records, kept_until=5).result()
    # 2, 3, 4 and, as long as the others usually, 1; of these 500 ms of the last three were loading; 5 and 6
    # are lost with theirs
    assert goodput == Goodput(
        wall_ns=8 * SECOND,
        startup_ns=2 * SECOND,
        productive_ns=3500 * MS,
        data_stall_ns=500 * MS,
        late_ns=None,
        lost_ns=2 * SECOND,
    )
    assert adds_up(goodput)
    assert goodput.ettr == 3.5 / 8


@pytest.mark.parametrize(
    "phases", [[], [make_phases(7)], [make_phases(3, **dict.fromkeys(make_phases()._fields[1:]))]]
)
def test_with_an_iteration_whose_phases_are_not_known_the_stall_is_in_productive(phases) -> None:
    step = make_step(3, start_ns=2 * SECOND, iteration_ns=SECOND)
    goodput = session(*loading(1, 200), *loading(2, 200), *phases, step).result()
    assert (goodput.productive_ns, goodput.data_stall_ns, goodput.wall_ns) == (3 * SECOND, None, 5 * SECOND)


def test_loading_is_never_longer_than_its_iteration() -> None:
    goodput = session(*loading(1, 1500)).result()
    assert (goodput.productive_ns, goodput.data_stall_ns, goodput.idle_ns) == (0, SECOND, 0)


def test_sessions_add_up_class_by_class() -> None:
    one = Goodput(wall_ns=5, startup_ns=1, productive_ns=3, data_stall_ns=1)
    two = Goodput(wall_ns=7, productive_ns=1, data_stall_ns=1, lost_ns=5)
    both = one.with_gap(3) + two
    assert both == Goodput(wall_ns=15, startup_ns=1, productive_ns=4, data_stall_ns=2, lost_ns=5, idle_ns=3)
    unknown = Goodput(wall_ns=4, productive_ns=4, data_stall_ns=None)
    expected = Goodput(wall_ns=19, startup_ns=1, productive_ns=10, data_stall_ns=None, lost_ns=5, idle_ns=3)
    assert (both + unknown, unknown + both) == (expected, expected)
    assert adds_up(expected)


def test_waiting_for_late_ranks_is_not_productive() -> None:
    known = Goodput(wall_ns=120, startup_ns=20, productive_ns=90, data_stall_ns=10, late_ns=None)
    divided = known.with_late(0.25)
    assert divided == Goodput(wall_ns=120, startup_ns=20, productive_ns=65, data_stall_ns=10, late_ns=25)
    assert divided.ettr == 65 / 120
    assert adds_up(divided)
    assert divided.with_late(None) == known
    assert known.with_late(2.0).productive_ns == 0  # never more than there is
    both = divided + known
    assert (both.late_ns, both.productive_ns, adds_up(both)) == (None, 180, True)


def test_one_rank_waits_for_no_other() -> None:
    assert session(*steps(1, 4, 3), world_size=1).result().late_ns == 0
    assert session(*steps(1, 4, 3), world_size=2).result().late_ns is None


def test_a_host_that_names_no_loading_has_no_data_stall_of_0() -> None:
    unnamed, named = (
        [each for n, one in enumerate(steps(2, 4, 8), 2) for each in (make_phases(n, **part), one)]
        for part in ({"data_loading_ns": None}, {"data_loading_ns": 0})
    )
    assert [session(*each).result().data_stall_ns for each in (unnamed, named)] == [None, 0]
