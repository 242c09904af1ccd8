"""A profile beside the monitor: it is given each step, and ends with the training or with the monitor."""

import json

import pytest

from flagscale_perf import hooks as hooks_module
from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.spine.errors import PerfError
from tests.unit.test_hooks import FakeLogger, FakeLoop


@pytest.fixture(autouse=True)
def logger(monkeypatch):
    FakeLogger.started = []
    monkeypatch.setattr(hooks_module, "PerfLogger", FakeLogger)
    return FakeLogger


class FakeProfile:
    """Notes the steps that it is given."""

    def __init__(self, error=None):
        self.seen, self.error = [], error

    def begin(self, iteration):
        self.seen.append(iteration)
        if self.error is not None:
            raise self.error

    def end(self, numbers):
        self.seen.append(None if numbers is None else numbers.tokens)

    def close(self):
        self.seen.append("closed")


def test_a_profile_is_given_each_step_and_is_closed_with_the_training():
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop())
    hooks.profile = profile = FakeProfile()
    for _ in range(2):
        hooks.step_start()
        hooks.step_end("result")
    hooks.train_end(None)
    assert profile.seen == [1, 32, 2, 32, "closed"]
    assert hooks.profile is None


def test_a_monitor_that_fails_closes_the_profile(capsys):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop())
    hooks.profile = profile = FakeProfile(ValueError("x"))
    hooks.step_start()
    assert (profile.seen, hooks.active) == ([1, "closed"], False)
    assert "monitor switched off at _begin_profile: ValueError: x" in capsys.readouterr().err


def test_what_an_adapter_has_to_say_is_an_event_and_said_once():
    loop, hooks = FakeLoop(), TrainingHooks()
    hooks.train_start(loop)
    hooks.note("iterations 3-4 are profiled")
    hooks.note("iterations 3-4 are profiled")
    assert FakeLogger.started[-1].events == [("note", 0, "iterations 3-4 are profiled")]
    assert loop.said[-1] == "flagscale_perf: iterations 3-4 are profiled"


def test_a_live_training_is_asked_for_a_profile_and_for_what_it_is_doing():
    hooks, asked = TrainingHooks(), '{"profile":[5,7]}'
    hooks.train_start(FakeLoop())
    (logger,) = FakeLogger.started
    assert logger.answering(asked) == "this host gives no model to the profiler"
    given, profile = [], FakeProfile()
    hooks.profile_on_request(lambda *window: given.append(window) or profile)
    assert (logger.answering(asked), given, hooks.profile) == ("", [(5, 7)], profile)
    assert logger.answering(asked) == "another window is profiled, or will be"
    hooks.step_start()
    found = json.loads(logger.answering('{"ask":1}'))
    assert (found["where"], found["iteration"]) == ("step", 0)
    hooks.step_end("result")
    hooks.pause("eval")
    assert json.loads(logger.answering('{"ask":2}'))["where"] == "eval"
    hooks.train_end(None)
    assert (logger.answering('{"ask":3}'), logger.answering(asked)) == ("", "the monitor is switched off")


def test_why_there_is_no_profile():
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop())
    errors = iter((PerfError("no profiling here"), ValueError("x")))

    def fails(first, last):
        raise next(errors)

    hooks.profile_on_request(fails)
    answering = FakeLogger.started[0].answering
    assert [answering('{"profile":[5,7]}') for _ in range(2)] == ["no profiling here", "ValueError: x"]
    hooks.train_end(None)
