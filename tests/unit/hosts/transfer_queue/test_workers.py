"""Ray's workers get the hook in their runtime environment, which keeps what it has."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.transfer_queue.workers import DE_DUPLICATION, patch_ray, variables, with_tracing
from flagscale_perf.trace.options import TraceOptions

OPTIONS = TraceOptions(trace=True, detail=False, directory=Path("/logs"), slow_ms=2.5)
SAID = {
    "TQ_TRACE_ENABLED": "1",
    "TQ_TRACE_DETAIL_ENABLED": "0",
    "TQ_TRACE_DIR": "/logs",
    "TQ_TRACE_STDOUT": "0",
    "TQ_TRACE_KEYS": "0",
    "TQ_TRACE_STAMP": "0",
    "TQ_SAMPLE_EVERY": "1",
    "TQ_SAMPLE_RATIO": "1.0",
    "TQ_SAMPLE_SLOW_MS": "2.5",
}


def begin() -> None:
    """What a worker is to do."""


def test_what_is_said_is_read_back_as_it_was() -> None:
    assert OPTIONS.variables == SAID
    assert TraceOptions.of(SAID) == OPTIONS


def test_ray_is_told_not_to_hide_our_lines_where_they_go_to_stdout() -> None:
    to_stdout = TraceOptions(trace=True, detail=True, directory=Path("/logs"), to_stdout=True)
    assert variables(OPTIONS, {}) == SAID
    assert variables(to_stdout, {})[DE_DUPLICATION] == r"\[TQ-"
    assert DE_DUPLICATION not in variables(to_stdout, {DE_DUPLICATION: "own"})


def test_a_runtime_environment_keeps_what_is_in_it() -> None:
    given = {"working_dir": None, "env_vars": {"TQ_TRACE_DIR": "/own", "OTHER": "1"}}
    made = with_tracing(given, OPTIONS, {"VERL_LOGGING_LEVEL": "INFO"}, begin)
    assert made.pop("worker_process_setup_hook") is begin
    assert made == {
        "working_dir": None,
        "env_vars": SAID | {"TQ_TRACE_DIR": "/own", "OTHER": "1", "VERL_LOGGING_LEVEL": "INFO"},
    }
    assert (
        with_tracing({"worker_process_setup_hook": "own.hook"}, OPTIONS, {}, begin)[
            "worker_process_setup_hook"
        ]
        == "own.hook"
    )
    assert with_tracing({"env_vars": None}, OPTIONS, {}, begin)["env_vars"] == SAID


@pytest.fixture
def ray() -> ModuleType:
    module = ModuleType("ray")
    module.init = lambda **given: given  # type: ignore[attr-defined]
    return module


def test_ray_begins_with_it_until_that_is_undone(ray: Any, monkeypatch) -> None:
    patches, init = Patches(), ray.init
    patch_ray(ray, OPTIONS, patches, begin)
    assert ray.init(num_cpus=8)["runtime_env"]["env_vars"]["TQ_TRACE_ENABLED"] == "1"
    assert ray.init(num_cpus=8)["num_cpus"] == 8
    kind = type("RuntimeEnv", (), {})()  # not a mapping: nobody knows how to add to it
    assert ray.init(runtime_env=kind) == {"runtime_env": kind}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    assert ray.init() == {}
    patches.undo()
    assert ray.init is init
