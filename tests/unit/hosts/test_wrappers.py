import pytest

from flagscale_perf.hosts.wrappers import data_skipped, ending, paused
from tests.unit.hosts.test_install import RecordingHooks


def host(*args, **kwargs):
    return args, kwargs


def failing():
    raise OSError("disk")


@pytest.mark.parametrize("wrap", [ending, data_skipped, lambda original, hooks: paused(original, hooks, "eval")])
@pytest.mark.parametrize("active", [True, False])
def test_arguments_and_results_pass_through(wrap, active):
    assert wrap(host, RecordingHooks(active))(1, two=2) == ((1,), {"two": 2})


def test_training_ends_however_it_ends():
    hooks = RecordingHooks()
    ending(host, hooks)()
    with pytest.raises(OSError, match="disk") as raised:
        ending(failing, hooks)()
    assert hooks.events == [("train_end", None), ("train_end", raised.value)]


def test_a_pause_ends_also_by_an_exception_and_is_not_told_while_inactive():
    hooks, idle = RecordingHooks(), RecordingHooks(active=False)
    for told in (hooks, idle):
        with pytest.raises(OSError, match="disk"):
            paused(failing, told, "checkpoint")()
    assert (hooks.events, idle.events) == ([("pause", "checkpoint"), ("resume", "checkpoint")], [])
