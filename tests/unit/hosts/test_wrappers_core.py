"""Megatron-Core's methods as phases, on stand-ins for its classes."""

import sys
from types import ModuleType

import pytest

from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.wrappers import CORE_PHASES, missing_phases, patch_core
from flagscale_perf.training.phases import PHASES
from tests.unit.hosts.test_timers import RecordingHooks

NAMES = {"zero_grad_buffer": "zero_grad", "should_run_forward_backward": "exposed_stat_comm"}


def module_with(monkeypatch, module_name, **methods):
    module = ModuleType(module_name)
    monkeypatch.setitem(sys.modules, module_name, module)
    class_name = CORE_PHASES[module_name][0]
    setattr(module, class_name, type(class_name, (), methods))
    return getattr(module, class_name)


@pytest.mark.parametrize("module_name", CORE_PHASES)
def test_the_method_is_a_phase_until_it_is_undone(monkeypatch, module_name):
    _, method, _ = CORE_PHASES[module_name]
    hooks, patches, phase = RecordingHooks(), Patches(), PHASES.index(NAMES[method])
    owner = module_with(monkeypatch, module_name, **{method: lambda self, *given: (self, *given)})
    patch_core(hooks, patches)
    held = owner()
    assert getattr(held, method)("data") == (held, "data")
    assert hooks.told == [phase, ~phase]
    patches.undo()
    assert getattr(held, method)("data") == (held, "data")
    assert hooks.told == [phase, ~phase]


@pytest.mark.parametrize("module_name", CORE_PHASES)
def test_a_core_without_the_method_is_left_alone(monkeypatch, module_name):
    owner = module_with(monkeypatch, module_name)
    before = dict(vars(owner))
    patch_core(RecordingHooks(), Patches())
    monkeypatch.setitem(sys.modules, module_name, ModuleType(module_name))
    patch_core(RecordingHooks(), Patches())
    assert dict(vars(owner)) == before


def test_a_phase_is_missing_where_the_core_that_is_loaded_has_no_such_method(monkeypatch):
    for module_name, (_, method, _) in CORE_PHASES.items():
        module_with(monkeypatch, module_name, **{method: lambda self: None})
    monkeypatch.delitem(sys.modules, "megatron.core", raising=False)
    assert missing_phases() == []
    monkeypatch.setitem(sys.modules, "megatron.core", ModuleType("megatron.core"))
    assert missing_phases() == []
    module_with(monkeypatch, "megatron.core.rerun_state_machine")
    assert missing_phases() == ["the phase exposed_stat_comm (it counts to other)"]
