"""The swap of the timers' class, on a stand-in of it; the host's real one is in tests/contract/test_timers.py."""

from types import ModuleType, SimpleNamespace

import pytest

from flagscale_perf.core.marks import STARTS, STOPS, kind_of
from flagscale_perf.core.phases import PHASE_OF
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.timers import own_timers, patch_timers, tells_phases, time_mark

FORWARD = PHASE_OF["forward-compute"]


class HostTimers:
    """One timer a name, which notes its calls in the object's `calls`."""

    def __init__(self, level):
        self.level, self.calls, self.made = level, [], {}

    def __call__(self, name, log_level=None):
        self.calls.append((name, log_level))
        note = self.calls.append
        timer = SimpleNamespace(start=lambda *a, **k: note(("start", a, k)), stop=lambda *a, **k: note(("stop", a, k)), value=5)
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


@pytest.fixture
def module():
    module = ModuleType("global_vars")
    module.Timers = HostTimers
    return module


@pytest.fixture
def timers(module, hooks):
    patch_timers(module, hooks, Patches())
    return module.Timers(2)


def test_calls_pass_through_and_start_and_stop_are_told_after_them(timers, hooks):
    timers("forward-compute", log_level=2).start(barrier=True)
    timers("forward-compute").stop(False)
    assert timers.calls == [("forward-compute", 2), ("start", (), {"barrier": True}), ("forward-compute", None), ("stop", (False,), {})]
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
    assert (before.host_timer is after.host_timer, timers("optimizer", 2).host_timer is after.host_timer) == (False, True)


def test_a_class_whose_timers_are_asked_for_in_another_way_is_left_alone(hooks):
    class Others:
        def __call__(self, name, log_level=None, stream=None):
            return None

    module = ModuleType("global_vars")
    module.Timers = Others
    patch_timers(module, hooks, Patches())
    assert module.Timers is Others


def test_what_a_mark_takes_is_measured_by_telling_some():
    assert 0 < time_mark() < 1_000_000


def test_outside_a_recorded_step_the_caller_gets_the_hosts_own_timer(timers, hooks):
    mark, hooks.mark = hooks.mark, None
    assert timers("forward-compute") is timers.made["forward-compute"]
    hooks.mark = mark
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
    assert (timers.made["forward-compute"].value, timer.other, timer.host_timer) == (7, 1, timers.made["forward-compute"])
    del timer.other
    with pytest.raises(AttributeError, match="other"):
        timer.other  # noqa: B018


def test_objects_made_anew_have_timers_of_their_own(module, hooks):
    patch_timers(module, hooks, Patches())
    first, second = module.Timers(0), module.Timers(0)
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


def test_undo_gives_the_class_back_and_ours_can_be_told_from_it(module, hooks):
    patches = Patches()
    patch_timers(module, hooks, patches)
    assert tells_phases(module.Timers(0))
    assert (module.Timers.__name__, module.Timers.__module__, module.Timers.__doc__) == ("HostTimers", "global_vars", HostTimers.__doc__)
    assert issubclass(module.Timers, HostTimers)
    patches.undo()
    assert module.Timers is HostTimers
    assert not tells_phases(module.Timers(0))


def test_a_host_keeps_the_class_under_a_name_of_its_own(hooks):
    module = ModuleType("state")
    module.Clocks = HostTimers
    patch_timers(module, hooks, Patches(), name="Clocks")
    module.Clocks(0)("optimizer").start()
    assert hooks.told == [PHASE_OF["optimizer"]]


def test_a_module_without_timers_is_left_alone(hooks):
    module = ModuleType("global_vars")
    patches = Patches()
    patch_timers(module, hooks, patches)
    module.Timers = "no class"
    patch_timers(module, hooks, patches)
    assert module.Timers == "no class"


def test_own_timers_tell_phases_and_do_nothing_else(hooks):
    timers = own_timers(hooks)
    assert tells_phases(timers)
    timers("forward-compute", log_level=2).start(barrier=True)
    timers("forward-compute").stop()
    timers("a name of the user's").start()
    assert hooks.told == [FORWARD, ~FORWARD]
    hooks.mark = None
    timers("forward-compute", log_level=2).start()
    assert hooks.told == [FORWARD, ~FORWARD]
