"""When a job stood still, from looks at it; really stopped ones: tests/processes/test_standstill.py."""

from __future__ import annotations

import pytest

from flagscale_perf.training import standstill
from flagscale_perf.training.records import PhaseRecord, StandstillRecord
from flagscale_perf.training.standstill import PERIOD_NS, StandstillWatch, Stretches, _Look
from tests.fakes import make_phases, make_step

MS, SECOND = 10**6, 10**9
HALF = PERIOD_NS // 2


def found_in(*looks: tuple[int, bool, int, int] | tuple[int, bool, int, int, int]) -> list[StandstillRecord]:
    """Of looks: moment in ms, whether the trainer is stopped, its CPU time, our wait for one, our faults."""
    made = (_Look(look[0] * MS, look[1], look[2] * MS, look[3] * MS, *look[4:]) for look in looks)
    watch = StandstillWatch(1, lambda pid: next(made))
    for _ in looks:
        watch.look()
    return watch._found


def test_a_trainer_that_was_seen_stopped() -> None:
    looks = [(0, False, 0, 0), *((at, True, 0, 0) for at in range(50, 3000, 50)), (3000, False, 10, 0)]
    assert found_in(*looks) == [StandstillRecord(HALF, 3000 * MS - PERIOD_NS, 0)]


@pytest.mark.parametrize("is_stopped_still", [False, True])
def test_a_gap_of_our_own_in_which_nobody_worked(is_stopped_still: bool) -> None:
    looks = [(0, False, 0, 0), (50, False, 50, 0), (9050, is_stopped_still, 60, 1), (9100, False, 90, 1)]
    (found,) = found_in(*looks)
    assert (found.start_ns, found.with_writer) == (50 * MS + HALF, 1)
    assert found.stood_ns == (9000 * MS if is_stopped_still else 9000 * MS - HALF)


@pytest.mark.parametrize(
    "gap",
    [
        pytest.param((9050, False, 8000, 0), id="the trainer worked"),
        pytest.param((9050, False, 60, 8900), id="we had no CPU"),
        pytest.param((400, True, 60, 0), id="a moment"),
        pytest.param((9050, False, 60, 0, 3), id="memory came back from a disk"),
    ],
)
def test_nothing_stood_still(gap: tuple[int, bool, int, int]) -> None:
    after = (gap[0] + 50, False, 9000, 9000, *gap[4:])
    assert found_in((0, False, 0, 0), (50, False, 50, 0), gap, after) == []


def test_what_held_another_thread_than_the_watchs_is_no_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter([_Look(0, False, 0, 0), _Look(2000 * MS, False, 0, 0), _Look(2001 * MS, False, 0, 0)])
    monkeypatch.setattr(standstill, "monotonic_ns", lambda: 10 * MS)
    watch = StandstillWatch(1, lambda pid: next(made))
    watch.look()
    assert watch.take() == []
    watch._last = _Look(1990 * MS, False, 0, 0)  # the thread has looked all the time
    watch.look()
    assert watch._found == []


def test_what_nobody_has_looked_at_yet_is_not_judged_by_another_thread() -> None:
    looks = [_Look(0, False, 0, 0), _Look(9000 * MS, False, 0, 0), _Look(9001 * MS, False, 0, 0)]
    made = iter(looks)
    watch = StandstillWatch(1, lambda pid: next(made))
    watch.look()
    assert watch.take() == []  # overdue: the thread stands as well
    watch.look()
    (found,) = watch._found
    assert (found.stood_ns, found.with_writer) == (9000 * MS - HALF, 1)


def test_a_trainer_that_goes_on_is_told_of_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [*(_Look(at * MS, True, 0, 0) for at in range(0, 1050, 50)), _Look(1010 * MS, False, 0, 0)]
    made = iter(looks)
    monkeypatch.setattr(standstill, "monotonic_ns", lambda: 1010 * MS)
    watch = StandstillWatch(1, lambda pid: next(made))
    for _ in looks[:-1]:
        watch.look()
    assert watch.take() == [StandstillRecord(HALF, 1010 * MS - PERIOD_NS, 0)]


def test_a_process_that_is_gone_ends_the_looking() -> None:
    assert not StandstillWatch(2**22 + 1).look()


def test_a_step_is_without_the_time_and_out_of_rates() -> None:
    stretches = Stretches()
    stretches.add(StandstillRecord(10 * SECOND, 5 * SECOND, 1))
    train = {"iteration_ns": 6 * SECOND, "train_step_ns": 6 * SECOND, "device_ns": 5 * SECOND}
    touched = make_step(2, start_ns=9 * SECOND, **train)
    before = make_step(1, start_ns=8 * SECOND, iteration_ns=2 * SECOND)
    saving = make_step(3, start_ns=9 * SECOND, iteration_ns=SECOND, checkpoint_ns=7 * SECOND)
    made = stretches.without([make_phases(1), before, make_phases(2), touched, saving])
    short = {"iteration_ns": SECOND, "train_step_ns": SECOND, "device_ns": SECOND}
    unknown = PhaseRecord(2, *[None] * (len(PhaseRecord._fields) - 1))
    assert made == [
        *(make_phases(1), before, unknown, touched._replace(**short, warmup=1)),
        saving._replace(checkpoint_ns=2 * SECOND, warmup=1),
    ]


def test_where_a_thread_that_counted_has_ended_nothing_is_known() -> None:
    looks = [_Look(0, False, 0, 9 * MS), _Look(3000 * MS, False, 0, 0)]
    made = iter(looks)
    watch = StandstillWatch(1, lambda pid: next(made))
    for _ in looks:
        watch.look()
    assert watch._found == []
