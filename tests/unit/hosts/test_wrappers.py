"""A wrapped function passes on everything, errors included, and its phase ends however it ends."""

from types import SimpleNamespace

import pytest

from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.wrappers import data_skipped, ending, leaving, opening, paused, phased
from flagscale_perf.training.phases import AGREEMENT, PHASES, ZERO_GRAD
from tests.unit.hosts import test_timers
from tests.unit.hosts.test_megatron import RecordingHooks


def host(*args, **kwargs):
    return args, kwargs


def failing():
    raise OSError("disk")


def training(original, hooks):
    return ending(original, hooks, Patches())


@pytest.mark.parametrize(
    "wrap", [training, data_skipped, leaving, lambda original, hooks: paused(original, hooks, "eval")]
)
@pytest.mark.parametrize("active", [True, False])
def test_arguments_and_results_pass_through(wrap, active):
    assert wrap(host, RecordingHooks(active))(1, two=2) == ((1,), {"two": 2})


def test_training_ends_however_it_ends():
    hooks, module, in_training = RecordingHooks(), SimpleNamespace(), Patches()
    in_training.set(module, "step", "ours")
    ending(host, hooks, in_training)()
    assert vars(module) == {}
    in_training.set(module, "step", "ours")
    with pytest.raises(OSError, match="disk") as raised:
        ending(failing, hooks, in_training)()
    assert vars(module) == {}
    assert hooks.events == [("train_end", None), ("train_end", raised.value)]


def test_a_pause_ends_also_by_an_exception_and_is_not_told_while_inactive():
    hooks, idle = RecordingHooks(), RecordingHooks(active=False)
    for told in (hooks, idle):
        with pytest.raises(OSError, match="disk"):
            paused(failing, told, "checkpoint")()
    assert (hooks.events, idle.events) == ([("pause", "checkpoint"), ("resume", "checkpoint")], [])


def test_leaving_the_loop_is_told_before_the_host_tidies_up():
    hooks, idle = RecordingHooks(), RecordingHooks(active=False)
    leaving(lambda: hooks.events.append("tidied up"), hooks)()
    leaving(host, idle)()
    assert (hooks.events, idle.events) == ([("loop_left",), "tidied up"], [])


def test_a_call_is_a_phase_also_if_it_raises():
    hooks = test_timers.RecordingHooks()
    zeroing = PHASES.index("zero_grad")
    assert phased(host, hooks, ZERO_GRAD)(1, two=2) == ((1,), {"two": 2})
    with pytest.raises(OSError, match="disk"):
        phased(failing, hooks, ZERO_GRAD)()
    hooks.mark = None
    assert phased(host, hooks, ZERO_GRAD)(1, two=2) == ((1,), {"two": 2})
    assert hooks.told == [zeroing, ~zeroing] * 2


def test_what_opens_a_phase_leaves_it_open():
    hooks = test_timers.RecordingHooks()
    assert opening(host, hooks, AGREEMENT)(1, two=2) == ((1,), {"two": 2})
    hooks.mark = None
    assert opening(host, hooks, AGREEMENT)(1, two=2) == ((1,), {"two": 2})
    assert hooks.told == [PHASES.index("exposed_stat_comm")]
