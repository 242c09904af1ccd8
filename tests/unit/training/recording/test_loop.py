"""The interface of a host adapter, and who fulfils it."""

import inspect

import pytest

from flagscale_perf.hosts.bridge import BridgeLoop
from flagscale_perf.hosts.manual import ManualLoop
from flagscale_perf.hosts.megatron import MegatronLoop
from flagscale_perf.training.recording.loop import Loop
from tests.unit.test_hooks import FakeLoop

METHODS = {name for name in vars(Loop) if not name.startswith("_")}
SET_AT_START = {BridgeLoop: {"say"}}  # on the object


def test_the_interface_is_these_methods():
    asked_at_start = {
        "rank",
        "stage",
        "lockstep",
        "microbatch",
        "config",
        "facts",
        "device_types",
        "model_args",
        "names_phases",
    }
    assert METHODS - asked_at_start == {"position", "numbers", "skipped_samples", "say"}


@pytest.mark.parametrize("adapter", [MegatronLoop, BridgeLoop, ManualLoop, FakeLoop])
def test_every_adapter_has_its_methods_with_its_parameters(adapter):
    for name in METHODS - SET_AT_START.get(adapter, set()):
        wanted = list(inspect.signature(getattr(Loop, name)).parameters)
        found = inspect.getattr_static(adapter, name)
        is_static = isinstance(found, staticmethod)
        assert list(inspect.signature(getattr(adapter, name)).parameters) == wanted[is_static:]
