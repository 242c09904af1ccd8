"""Where a loop has what is to be wrapped: real modules on a path of their own."""

import importlib
import sys
from types import SimpleNamespace

import pytest

from flagscale_perf.hosts.hook_points import Point, given_to, missing, places, wrap
from flagscale_perf.hosts.patching import Patches

LOOP = """
import points_host.saving as saving
from points_host.logs import training_log as log
from points_host import logs

def train(model, manager=None, **more):
    from points_host.extra import extra_evaluate as evaluate_more
    evaluate_more()
    saving.save()
    log()
    manager.finalize_async_saves(blocking=True)
    from .late import late
    return late()

def train_step():
    pass
"""
PARTS = {
    "extra": "def extra_evaluate(): return 'extra'",
    "saving": "def save(): return 'saved'",
    "logs": "def training_log(): return 'logged'",
    "late": "def late(): return 'late'",
}
POINTS = {
    "train_step": Point("steps"),
    "extra_evaluate": Point("extra evaluation", option="extra_eval_interval"),
    "save": Point("checkpoints"),
    "training_log": Point("lengths"),
    "maybe_finalize": Point("asynchronous checkpoints", also=("finalize_async_saves",)),
    "late": Point("late"),
    "nowhere": Point("nothing"),
    "not_asked": Point("nothing, too", option="not_asked_interval"),
}


class Manager:
    def finalize_async_saves(self, blocking):
        return "finalized"


class Slotted:
    __slots__ = ()

    def finalize_async_saves(self, blocking):
        return "finalized"


@pytest.fixture
def loop(tmp_path, monkeypatch):
    package = tmp_path / "points_host"
    package.mkdir()
    for name, text in {"__init__": "", "loop": LOOP, **PARTS}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("points_host.loop")
    for name in [name for name in sys.modules if name.partition(".")[0] == "points_host"]:
        del sys.modules[name]


@pytest.mark.parametrize("manager", [Manager(), Slotted()])
def test_each_point_is_wrapped_where_the_loop_takes_it_from_and_given_back(loop, manager):
    seen, patches = [], Patches()

    def noting(name):
        def wrapper(original):
            return lambda *args, **kwargs: (seen.append(name), original(*args, **kwargs))[1]

        return wrapper

    given = given_to(loop.train, (None, manager), {})
    wrap((loop, POINTS), {name: noting(name) for name in POINTS}, given, patches)
    assert loop.train(None, manager) == "late"
    every = ["extra_evaluate", "save", "training_log", "maybe_finalize", "late"]
    assert seen == every
    patches.undo()
    assert loop.train(None, manager) == "late"
    assert seen == every
    assert vars(Manager).keys() - vars(Slotted).keys() == {"__dict__", "__weakref__"}


def test_what_is_nowhere_is_missing_and_what_the_host_does_not_call_is_not(loop):
    given, options = {"manager": Manager()}, {"extra_eval_interval": 5}
    assert missing(loop, POINTS, given, options) == ["nothing"]
    assert missing(loop, POINTS, {}, options) == ["asynchronous checkpoints", "nothing"]
    assert missing(loop, POINTS, given, options | {"not_asked_interval": 3}) == ["nothing", "nothing, too"]


def test_a_host_whose_source_cannot_be_read_has_its_globals(loop):
    loop.__file__ = None
    assert places(loop, ("train_step", POINTS["train_step"]), {}) == [(loop, "train_step")]
    assert places(loop, ("save", POINTS["save"]), {}) == []


def test_arguments_are_named_where_they_can_be():
    assert given_to(lambda model, *, data: None, (1,), {"data": 2}) == {"model": 1, "data": 2}
    assert given_to(lambda model: None, (1, 2), {"more": 3}) == {"more": 3}
    assert SimpleNamespace(**given_to(dict, (), {"a": 1})).a == 1
