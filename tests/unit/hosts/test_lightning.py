"""What is wrapped of Lightning's Trainer. Real ones train in tests/processes/test_lightning.py."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.hosts.lightning import POINTS, Lightning
from flagscale_perf.hosts.patching import Patches


def of_a_package(monkeypatch: pytest.MonkeyPatch, lacking: str = "") -> Any:
    """The module of its Trainer; methods return what they are given."""
    for where, (name, methods) in POINTS.items():
        made: Any = ModuleType(f"made_up.{where}")
        known = dict.fromkeys((each for each in methods if each != lacking), lambda self, *given: given)
        setattr(made, name, type(name, (), known))
        monkeypatch.setitem(sys.modules, made.__name__, made)
    return sys.modules["made_up.trainer.trainer"]


@pytest.mark.parametrize("lacking", sorted({name for _, names in POINTS.values() for name in names}))
def test_a_trainer_of_another_form_is_left_alone(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    module = of_a_package(monkeypatch, lacking)
    before = dict(vars(module.Trainer))
    Lightning(TrainingHooks(), Patches(), PerfConfig).patch(module)
    assert dict(vars(module.Trainer)) == before


def test_a_training_that_is_not_to_be_monitored_and_what_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, patches, hooks = of_a_package(monkeypatch), Patches(), TrainingHooks()
    before = dict(vars(module.Trainer))
    Lightning(hooks, patches, PerfConfig).patch(module)
    trainer = module.Trainer()
    trainer.training = True
    assert trainer._run_stage(1) == (1,) and not hooks.entered
    patches.undo()
    assert dict(vars(module.Trainer)) == before
