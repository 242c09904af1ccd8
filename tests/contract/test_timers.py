"""Megatron's real timers while they tell the phases: whatever the host asks of them, it gets what it would
have got.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from flagscale_perf.device.marks import kind_of
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.timers import Shadow, mark_phases
from flagscale_perf.training.marks import STARTS, STOPS
from flagscale_perf.training.phases import PHASE_OF_NUMBER, PHASES

pytestmark = pytest.mark.usefixtures("either_way")

NAMES = ["forward-backward", "forward-compute", "optimizer", "interval-time"]


@dataclass(frozen=True)
class Host:
    """Megatron's module `megatron.core.timers`, and what was called behind it."""

    timers: ModuleType
    called: list[Any]
    restart_clock: Callable[[], None]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    spec = importlib.util.find_spec("flag_scale")
    assert spec is not None and spec.submodule_search_locations is not None, (
        "FlagScale is not installed; run: make venv"
    )
    source = Path(
        next(iter(spec.submodule_search_locations)), "third_party/Megatron-LM/megatron/core/timers.py"
    )
    monkeypatch.setitem(
        sys.modules, "megatron.core.utils", SimpleNamespace(is_torch_min_version=lambda _: True)
    )
    module_spec = importlib.util.spec_from_file_location("megatron.core.timers", source)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    monkeypatch.setitem(sys.modules, "megatron.core.timers", module)
    for package in ("megatron", "megatron.core"):
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    module_spec.loader.exec_module(module)

    called: list[Any] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: called.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    distributed = {"get_world_size": 1, "get_rank": 0, "get_backend": "gloo"}
    for name, value in distributed.items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    monkeypatch.setattr(torch.distributed, "barrier", lambda group=None: called.append("barrier"))
    monkeypatch.setattr(module, "dist_all_gather_func", lambda output, own: called.append("all-gather"))

    def restart_clock() -> None:
        ticks = itertools.count()
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: float(2 ** (next(ticks) % 20))))

    restart_clock()
    return Host(module, called, restart_clock)


class Marks:
    """`TrainingHooks` as far as the timers know them."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def mark(self, mark: int) -> None:
        kind = kind_of(mark)
        what, kinds = ("start", STARTS) if kind in STARTS else ("stop", STOPS)
        self.told.append((what, PHASES[PHASE_OF_NUMBER[kinds.index(kind)]]))


@pytest.fixture
def marks() -> Marks:
    return Marks()


def telling(host: Host, marks: Marks, *given: Any) -> Any:
    """Timers of the host that tell their phases."""
    timers = host.timers.Timers(*given)
    mark_phases(timers, marks, Patches())  # type: ignore[arg-type]
    return timers


def a_step_of_the_host(timers: Any, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    """What a training loop does with its timers, and everything it can see of it."""
    seen: list[Any] = []
    timers("interval-time", log_level=0).start(barrier=True)
    timers("forward-backward", log_level=1).start(barrier=True)
    for _ in range(2):
        timers("forward-compute", log_level=2).start()
        timers("forward-compute").stop()
    timers("forward-backward").stop()
    timers("optimizer", log_level=1).start(barrier=False)
    timers("optimizer").stop()
    seen.append(timers("interval-time").elapsed(barrier=True))
    for name in ("forward-compute", "optimizer"):
        try:
            seen.append((timers(name).elapsed(reset=False), timers(name).active_time(), timers(name).name))
        except Exception as error:
            seen.append((type(error), str(error)))
    written: list[Any] = []
    writer = SimpleNamespace(add_scalar=lambda *point: written.append(point))
    seen += [timers.get_all_timers_string(NAMES, reset=False), timers.get_all_timers_string(reset=False)]
    timers.write(NAMES, writer, 7, reset=False)
    timers.log(NAMES)
    seen += [written, capsys.readouterr().out, list(timers._timers), dict(timers._log_levels)]
    seen += [type(timer) for timer in timers._timers.values()]
    return seen


@pytest.mark.parametrize("option", ["max", "minmax", "all"])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_host_sees_what_it_would_have_seen(
    level: int, option: str, host: Host, marks: Marks, capsys
) -> None:
    seen, called = [], []
    for timers in (host.timers.Timers(level, option), telling(host, marks, level, option)):
        host.restart_clock()
        host.called.clear()
        seen.append(a_step_of_the_host(timers, capsys))
        called.append(list(host.called))
    assert seen[0] == seen[1]
    assert called[0] == called[1]
    phases = ["forward_backward_other", "forward", "forward", "optimizer"]
    assert [phase for what, phase in marks.told if what == "start"] == phases
    assert sorted(phase for what, phase in marks.told if what == "stop") == sorted(phases)


def test_elapsed_and_reset_of_a_running_timer_tell_nothing(host: Host, marks: Marks) -> None:
    timers = telling(host, marks, 2, "max")
    timers("optimizer").start()
    timers("optimizer").elapsed()  # the host stops and starts it by itself
    timers("optimizer").reset()
    assert marks.told == [("start", "optimizer")]


def test_the_hosts_own_refusals_come_through_untold(host: Host, marks: Marks) -> None:
    timers = telling(host, marks, 2, "max")
    with pytest.raises(AssertionError, match="timer is not started"):
        timers("optimizer").stop()
    with pytest.raises(AssertionError, match="does not match already existing"):
        timers("optimizer", log_level=1)
    assert marks.told == []


def test_a_name_that_is_a_dummy_first_and_a_timer_later(host: Host, marks: Marks) -> None:
    timers = telling(host, marks, 0, "max")
    timers("optimizer", log_level=1).start()
    timers("optimizer", log_level=0).start()
    assert timers._timers["optimizer"]._started
    assert marks.told == [("start", "optimizer")] * 2


def test_a_barrier_group_reaches_the_hosts_timer(host: Host, marks: Marks) -> None:
    timers = telling(host, marks, 2, "max")
    timers("optimizer").set_barrier_group("a group")
    timers("optimizer")._elapsed = 3.0
    assert (timers._timers["optimizer"]._barrier_group, timers._timers["optimizer"]._elapsed) == (
        "a group",
        3.0,
    )


def test_copies_are_the_hosts_own(host: Host, marks: Marks) -> None:
    timers = telling(host, marks, 2, "max")
    timers("optimizer").start()
    again = copy.deepcopy(timers)
    assert type(again) is type(copy.copy(timers)) is host.timers.Timers
    assert again._timers["optimizer"]._started


def test_the_hosts_dummy_is_not_called_for_nothing(host: Host, marks: Marks) -> None:
    timers = telling(host, marks, 0, "max")
    assert not isinstance(timers("optimizer", log_level=1), Shadow)
    assert isinstance(timers("optimizer", log_level=0), Shadow)
