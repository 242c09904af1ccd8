"""Zeroing the gradient buffers as a phase, on a stand-in for Megatron-Core's class."""

from types import ModuleType

import pytest

from flagscale_perf.core.phases import PHASES
from flagscale_perf.hosts.gradients import GRADIENTS_MODULE, patch_gradients
from flagscale_perf.hosts.patching import Patches
from tests.unit.hosts.test_timers import RecordingHooks

ZEROING = PHASES.index("zero_grad")


class DistributedDataParallel:
    def zero_grad_buffer(self):
        return self


@pytest.fixture
def module():
    module = ModuleType(GRADIENTS_MODULE)
    module.DistributedDataParallel = type("DistributedDataParallel", (DistributedDataParallel,), {})
    return module


def test_zeroing_is_a_phase_until_it_is_undone(module):
    hooks, patches, model = RecordingHooks(), Patches(), module.DistributedDataParallel()
    patch_gradients(module, hooks, patches)
    assert model.zero_grad_buffer() is model
    assert hooks.told == [ZEROING, ~ZEROING]
    patches.undo()
    assert model.zero_grad_buffer() is model
    assert hooks.told == [ZEROING, ~ZEROING]


def test_a_core_without_the_method_is_left_alone(module):
    module.DistributedDataParallel = type("DistributedDataParallel", (), {})
    before = dict(vars(module.DistributedDataParallel))
    patch_gradients(module, RecordingHooks(), Patches())
    patch_gradients(ModuleType("empty"), RecordingHooks(), Patches())
    assert dict(vars(module.DistributedDataParallel)) == before
