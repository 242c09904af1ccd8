"""Profiling beside the monitor: asked for by name, and what is said where it cannot be."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.hosts import profiled
from flagscale_perf.hosts.profiled import PROFILING_MODULE, begin_profile, check_asked
from flagscale_perf.spine.errors import PerfError

ON = PerfConfig(enable_perf_monitor=True, perf_profile_steps="20-22", perf_profile_ranks="0,2")


class Hooks:
    """Notes what is said."""

    def __init__(self) -> None:
        self.profile: object = None
        self.job = "a job"
        self.said: list[str] = []

    def profile_on_request(self, make: Any) -> None:
        """Nobody asks."""

    def note(self, text: str) -> None:
        self.said.append(text)


def begun(config: PerfConfig, models: Any = lambda: "models") -> Hooks:
    hooks = Hooks()
    begin_profile(hooks, SimpleNamespace(config=lambda: config), models)  # type: ignore[arg-type]
    return hooks


def with_profiling(monkeypatch: pytest.MonkeyPatch, begin: Any) -> None:
    module = SimpleNamespace(begin=begin)
    monkeypatch.setitem(sys.modules, PROFILING_MODULE, module)  # type: ignore[misc]


def test_nothing_is_imported_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiled.importlib, "import_module", lambda name: pytest.fail(name))
    check_asked(PerfConfig(perf_profile_steps="20-22"))
    check_asked(PerfConfig(enable_perf_monitor=True))
    hooks = begun(PerfConfig(enable_perf_monitor=True), lambda: pytest.fail("the model is not looked at"))
    assert (hooks.profile, hooks.said) == (None, [])


def test_the_models_and_the_job_are_given_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with_profiling(monkeypatch, lambda models, config, job: (models, config, job))
    hooks = begun(ON)
    assert hooks.profile == ("models", ON, "a job")
    assert hooks.said == [
        "3 iterations of ranks 0,2 from 20 on are profiled, each beside 1 clean; they take longer"
    ]


def test_a_failure_is_said_and_the_monitor_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PerfError("steps 20-22: too many")

    def failed(*_: object) -> None:
        raise ValueError("no such thing")

    with_profiling(monkeypatch, refused)
    assert begun(ON).said == ["not profiled: steps 20-22: too many"]
    with_profiling(monkeypatch, failed)
    assert begun(ON).said == ["not profiled: ValueError: no such thing"]


def test_a_package_without_profiling_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name="flagscale_perf.hosts.profiling")

    monkeypatch.setattr(profiled.importlib, "import_module", missing)
    with pytest.raises(PerfError) as refusal:
        check_asked(ON)
    assert str(refusal.value) == f"--perf-profile-steps 20-22: {profiled.ABSENT}"
    assert begun(ON).said == [f"not profiled: {refusal.value}"]


def test_what_the_profiling_itself_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")

    monkeypatch.setattr(profiled.importlib, "import_module", missing)
    assert begun(ON).said == ["not profiled: ModuleNotFoundError: No module named 'numpy'"]
