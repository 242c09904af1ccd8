"""The timers' class for the length of a training, on a stand-in of it; the host's real one is in
tests/contract/test_timers.py.
"""

import copy
from types import SimpleNamespace

import pytest

from flagscale_perf.device.marks import kind_of
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.timers import SilentTimers, can_mark_phases, mark_phases, phase_timer, time_mark
from flagscale_perf.training.marks import STARTS, STOPS
from flagscale_perf.training.phases import PHASE_OF

pytestmark = pytest.mark.usefixtures("either_way")

FORWARD = PHASE_OF["forward-compute"]


class HostTimers:
    """One timer a name, which notes its calls in the object's `calls`."""

    def __init__(self, level):
        self.level, self.calls, self.made = level, [], {}

    def __call__(self, name, log_level=None):
        self.calls.append((name, log_level))
        note = self.calls.append
        timer = SimpleNamespace(
            start=lambda *a, **k: note(("start", a, k)), stop=lambda *a, **k: note(("stop", a, k)), value=5
        )
        return self.made.setdefault(name, timer)


class RecordingHooks:
    """Notes a start as the phase, a stop as its complement."""

    def __init__(self):
        self.active, self.told, self.failed = True, [], []
        self.mark = self.note

    def note(self, mark):
        kind = kind_of(mark)
        self.told.append(STARTS.index(kind) if kind in STARTS else ~STOPS.index(kind))

    def phase_failed(self, error):
        self.failed.append(error)


@pytest.fixture
def hooks():
    return RecordingHooks()


def telling(hooks, timers):
    mark_phases(timers, hooks, Patches())
    return timers


@pytest.fixture
def timers(hooks):
    return telling(hooks, HostTimers(2))


def test_calls_pass_through_and_start_and_stop_are_told_after_them(timers, hooks):
    timers("forward-compute", log_level=2).start(barrier=True)
    timers("forward-compute").stop(False)
    assert timers.calls == [
        ("forward-compute", 2),
        ("start", (), {"barrier": True}),
        ("forward-compute", None),
        ("stop", (False,), {}),
    ]
    assert hooks.told == [FORWARD, ~FORWARD]


def test_the_host_is_asked_for_a_timer_once_a_level_and_for_what_is_no_phase_too(timers, hooks):
    for _ in range(3):
        for name in ("forward-compute", "interval-time"):
            timers(name, log_level=2).start()
            timers(name).stop()
    asked = [call for call in timers.calls if call[0] not in ("start", "stop")]
    assert asked == [(name, level) for name in ("forward-compute", "interval-time") for level in (2, None)]
    assert hooks.told == [FORWARD, ~FORWARD] * 3


def test_a_timer_that_the_host_made_meanwhile_is_the_answer_from_then_on(timers):
    before = timers("optimizer", 2)
    timers.made.pop("optimizer")  # as when a dummy becomes a timer: by a request with another level
    after = timers("optimizer", 0)
    assert (before.host_timer is after.host_timer, timers("optimizer", 2).host_timer is after.host_timer) == (
        False,
        True,
    )


def test_what_a_mark_takes_is_measured_by_telling_some():
    measured = [time_mark() for _ in range(5)]  # a busy machine may leave nothing of one's difference
    assert 0 < max(measured) < 1_000_000


def test_outside_a_recorded_step_nothing_is_told(timers, hooks):
    held = timers("forward-compute")
    hooks.mark = None
    held.start()
    held.stop()
    assert hooks.told == []
    assert timers.calls[-2:] == [("start", (), {}), ("stop", (), {})]


def test_a_name_without_a_phase_is_the_hosts_own_timer(timers):
    assert timers("interval-time", 0) is timers.made["interval-time"]


def test_attributes_are_the_timers_own(timers):
    timer = timers("forward-compute")
    timer.value = 7
    timer.other = 1
    assert (timers.made["forward-compute"].value, timer.other, timer.host_timer) == (
        7,
        1,
        timers.made["forward-compute"],
    )
    del timer.other
    with pytest.raises(AttributeError, match="other"):
        timer.other  # noqa: B018


def test_each_object_has_timers_of_its_own(hooks):
    first, second = telling(hooks, HostTimers(0)), telling(hooks, HostTimers(0))
    assert first("optimizer").host_timer is first.made["optimizer"]
    assert second("optimizer").host_timer is second.made["optimizer"]
    assert first("optimizer").host_timer is first.made["optimizer"]


def test_a_start_that_raises_is_not_told_and_raises_what_it_raised(timers, hooks):
    def start():
        raise AssertionError("timer has already been started")

    timer = timers("forward-compute")
    timer.start = start
    with pytest.raises(AssertionError, match="already been started"):
        timers("forward-compute").start()
    assert hooks.told == []


def test_a_mark_that_fails_is_told_and_the_host_notices_nothing(timers, hooks):
    hooks.mark = "no function"
    held = timers("forward-compute")
    held.start()
    held.stop()
    assert [type(error) for error in hooks.failed] == [TypeError] * 2
    assert timers.calls[-2:] == [("start", (), {}), ("stop", (), {})]


def test_undo_gives_the_object_its_class_back(hooks):
    timers, patches = HostTimers(0), Patches()
    mark_phases(timers, hooks, patches)
    assert isinstance(timers, HostTimers)
    assert type(timers) is not HostTimers
    patches.undo()
    assert type(timers) is HostTimers
    timers("optimizer").start()
    assert hooks.told == []


def test_timers_without_a_class_of_that_kind_can_tell_nothing():
    assert [can_mark_phases(each) for each in (None, 5, len, HostTimers, HostTimers(0))] == [False] * 4 + [
        True
    ]


def test_timers_that_measure_nothing_tell_phases_and_do_nothing_else(hooks):
    timers = telling(hooks, SilentTimers())
    timers("forward-compute", log_level=2).start(barrier=True)
    timers("forward-compute").stop(False)
    timers("a name of the user's").start()
    assert hooks.told == [FORWARD, ~FORWARD]
    hooks.mark = None
    timers("forward-compute", log_level=2).start()
    assert hooks.told == [FORWARD, ~FORWARD]
    with pytest.raises(TypeError):
        timers("forward-compute").start(1, 2)


class Dummy:
    """As the host's: another timer than ours that measures nothing."""

    def __init__(self):
        self.name = "dummy"

    def start(self, barrier=False):
        """Documented."""
        return

    def stop(self, barrier=False):
        return None

    def elapsed(self):
        raise LookupError(self.name)


class Counting(Dummy):
    """Its stop does something."""

    count = 0

    def stop(self, barrier=False):
        self.count += 1


class OtherDefault(Dummy):
    def start(self, barrier=True):
        return


class Chained(Dummy):
    def start(self, barrier=False):
        return self


class Answering(Dummy):
    def start(self, barrier=False):
        return 5


class OneTimer:
    def __init__(self, timer):
        self.timer = timer

    def __call__(self, name, log_level=None):
        return self.timer


def test_a_dummy_of_the_host_is_stood_for_by_one_of_its_class(hooks):
    timers = telling(hooks, OneTimer(Dummy()))
    timer = timers("forward-compute", 2)
    assert isinstance(timer, Dummy)
    assert timers("optimizer", 2) is not timer
    with pytest.raises(LookupError, match="dummy"):
        timer.elapsed()
    timer.start()
    assert hooks.told == [FORWARD]


@pytest.mark.parametrize("kind", [Counting, OtherDefault])
def test_a_timer_that_does_anything_is_called(hooks, kind):
    host_timer = kind()
    timer = telling(hooks, OneTimer(host_timer))("forward-compute")
    assert timer.host_timer is host_timer
    timer.start()
    timer.stop()
    assert (host_timer.count if kind is Counting else 1, hooks.told) == (1, [FORWARD, ~FORWARD])


@pytest.mark.parametrize("kind", [Chained, Answering])
def test_what_a_start_returns_comes_back(hooks, kind):
    host_timer = kind()
    timer = telling(hooks, OneTimer(host_timer))("forward-compute")
    assert timer.start() == host_timer.start()


def test_a_dummy_whose_start_was_replaced_is_called(hooks):
    host_timer, called = Dummy(), []
    host_timer.start = lambda: called.append("start")
    telling(hooks, OneTimer(host_timer))("forward-compute").start()
    assert (called, hooks.told) == (["start"], [FORWARD])


def test_a_phase_without_a_timer_of_the_host(hooks):
    timer = phase_timer(hooks, "forward-compute")
    timer.start()
    timer.stop()
    assert hooks.told == [FORWARD, ~FORWARD]


class MeasuringTimer:
    def __init__(self):
        self.value = 5

    def start(self, barrier=False):
        self.value += 1

    def stop(self, barrier=False):
        self.value += 1


class IdleTimer(MeasuringTimer):
    def start(self, barrier=False):
        return

    def stop(self, barrier=False):
        return


class NamedTimers:
    def __init__(self, kind):
        self.made = {"optimizer": kind()}

    def __call__(self, name, log_level=None):
        return self.made[name]


@pytest.mark.parametrize("kind", [MeasuringTimer, IdleTimer])
def test_copies_of_a_timer_and_of_all_are_of_the_hosts_classes_and_tell_nothing(hooks, kind):
    timers = telling(hooks, NamedTimers(kind))
    timer = timers("optimizer")
    timer.value = 7
    for copied in (copy.copy(timer), copy.deepcopy(timer)):
        copied.start()
        assert (type(copied), vars(copied).keys()) == (kind, {"value"})
    assert timer.__reduce_ex__(4)[1:] == ((kind,), {"value": 7})  # what a pickle would hold
    for copied in (copy.copy(timers), copy.deepcopy(timers)):
        copied("optimizer").start()
        assert (type(copied), type(copied("optimizer"))) == (NamedTimers, kind)
    assert hooks.told == []
