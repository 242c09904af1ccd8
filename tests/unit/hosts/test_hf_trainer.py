"""What is wrapped of a Trainer. Real ones train in tests/processes/test_hf_trainer.py."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.hosts.hf_trainer import POINTS, HuggingFace
from flagscale_perf.hosts.patching import Patches


def module(*points: str) -> Any:
    made: Any = ModuleType("transformers.trainer")
    made.Trainer = type("Trainer", (), dict.fromkeys(points, lambda self, *given: given))
    made.CallbackHandler = type("CallbackHandler", (), {"on_step_end": lambda self, *given: given})
    return made


@pytest.mark.parametrize("lacking", POINTS)
def test_a_trainer_of_another_form_is_left_alone(lacking: str) -> None:
    given = module(*(name for name in POINTS if name != lacking))
    before = dict(vars(given.Trainer))
    HuggingFace(TrainingHooks(), Patches(), PerfConfig).patch(given)
    assert dict(vars(given.Trainer)) == before


def test_a_training_that_is_not_to_be_monitored_and_what_is_taken_back() -> None:
    given, patches, hooks = module(*POINTS), Patches(), TrainingHooks()
    before = dict(vars(given.Trainer)), dict(vars(given.CallbackHandler))
    HuggingFace(hooks, patches, PerfConfig).patch(given)
    trainer, handler = given.Trainer(), given.CallbackHandler()
    assert vars(given.Trainer).keys() == before[0].keys() and vars(given.CallbackHandler) == before[1]
    assert trainer.train(1) == (1,)
    assert trainer.get_batch_samples(2) == (2,) and not hooks.entered
    state = SimpleNamespace()
    assert handler.on_step_end("args", state, "control") == ("args", state, "control")
    patches.undo()
    assert (dict(vars(given.Trainer)), dict(vars(given.CallbackHandler))) == before
