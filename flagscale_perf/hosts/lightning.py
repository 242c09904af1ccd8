"""Lightning's `Trainer` (packages lightning and pytorch_lightning): an unmodified script, whose training is
known like Megatron's.

A step is from the loading of its first micro-batch to the end of its optimization; callbacks, loggers and
schedulers of the learning rate follow it. Under manual optimization every batch is a step.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from flagscale_perf.hosts import core_loop, trainer_loop
from flagscale_perf.hosts.patching import Wrapper
from flagscale_perf.hosts.timers import phase_timer, time_mark
from flagscale_perf.hosts.trainer_loop import TrainerHost
from flagscale_perf.hosts.wrappers import before, opening, paused, phased
from flagscale_perf.training.phases import ZERO_GRAD

TRAINER_MODULES = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")
# Module -> class and what of it must be there, as since 2.0; without one of them the Trainer is left alone.
POINTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "trainer.trainer": ("Trainer", ("_run_stage", "save_checkpoint")),
    "loops.training_epoch_loop": (
        "_TrainingEpochLoop",
        ("advance", "_on_before_fetch", "_on_after_fetch", "_should_accumulate"),
    ),
    "loops.optimization.automatic": ("_AutomaticOptimization", ("run", "_optimizer_zero_grad")),
    "loops.optimization.manual": ("_ManualOptimization", ("run",)),
    "loops.evaluation_loop": ("_EvaluationLoop", ("run",)),
    "strategies.strategy": ("Strategy", ("batch_to_device", "training_step", "backward", "optimizer_step")),
}


class _Told:
    """See `trainer_loop.Trainer`."""

    def __init__(self, trainer: Any, package: str) -> None:
        self.host = f"{package} {core_loop.version_of(package)} Trainer"
        self.model = _language_model(trainer.lightning_module)
        self.rank, self.world_size = int(trainer.global_rank), int(trainer.world_size)
        sampled = getattr(trainer.strategy, "distributed_sampler_kwargs", None) or {}
        self.data_parallel = int(sampled.get("num_replicas", 1))
        self.accumulated = int(trainer.accumulate_grad_batches)
        self.precision = str(trainer.precision)
        # Under manual optimization it counts every optimizer's steps by themselves.
        steps = trainer.estimated_stepping_batches if trainer.lightning_module.automatic_optimization else 0
        self.steps = int(steps) if 0 < steps < math.inf else None
        # Its own say nothing of what scripts give to their loaders and callbacks.
        self.arguments: Mapping[str, Any] | None = None
        has_scaler = getattr(trainer.precision_plugin, "scaler", None) is not None
        self.missing = ["updates that the gradient scaler skips (they count)"] * has_scaler
        # By the host's count for its loggers, which is one a step however many optimizers there are.
        loop = trainer.fit_loop.epoch_loop
        self.finished: Callable[[], int] = functools.partial(getattr, loop, "_batches_that_stepped")
        self.skipped: Callable[[], bool] | None = None  # not known without waiting for the device


def _language_model(module: Any) -> Any:
    """The model of transformers that has all the weights of this module; the module itself without one."""
    weights = {*map(id, module.parameters())}
    for each in module.modules():
        if callable(getattr(each, "get_output_embeddings", None)):
            return each if {*map(id, each.parameters())} == weights else module
    return module


class Lightning(TrainerHost):
    """Of the Trainer's module only `_run_stage` is wrapped all the time, where everything is set up."""

    _is_in_step = _is_first = False

    def patch(self, module: ModuleType) -> None:
        """Wraps the beginning of a training. A Trainer without what is called in one is left alone."""
        self._root = module.__name__.removesuffix(".trainer.trainer")
        if all(hasattr(self._of(where), name) for where, (_, names) in POINTS.items() for name in names):
            self.hooks.time_mark = time_mark
            self.patches.wrap(module.Trainer, {"_run_stage": self.run})

    def _of(self, where: str) -> Any:
        return getattr(sys.modules.get(f"{self._root}.{where}"), POINTS[where][0], None)

    def trains(self, trainer: Any) -> bool:
        """Not where it validates, tests or predicts."""
        return bool(trainer.training)

    def told(self, trainer: Any) -> trainer_loop.Trainer:
        """Its properties."""
        return _Told(trainer, self._root.partition(".")[0])

    def patch_training(self) -> None:
        """Wraps what a training calls, until it ends."""
        self._is_in_step = self._is_first = False
        self._stage = self.trainer.state.stage
        loading = phase_timer(self.hooks, "batch-generator")
        phase = functools.partial(functools.partial, phased, hooks=self.hooks)
        pause = functools.partial(functools.partial, paused, hooks=self.hooks)
        wrappers: dict[str, dict[str, Wrapper]] = {
            "trainer.trainer": {"save_checkpoint": pause(kind="checkpoint")},
            "loops.training_epoch_loop": {
                "advance": self._advance,
                "_on_before_fetch": functools.partial(opening, hooks=self.hooks, name="batch-generator"),
                "_on_after_fetch": functools.partial(before, act=loading.stop),
            },
            "loops.optimization.automatic": {"run": self._run, "_optimizer_zero_grad": phase(name=ZERO_GRAD)},
            "loops.optimization.manual": {"run": self._run},
            "loops.evaluation_loop": {"run": pause(kind="eval")},
            "strategies.strategy": {
                "batch_to_device": self._batch_to_device,
                "training_step": phase(name="forward-compute"),
                "backward": phase(name="backward-compute"),
                "optimizer_step": phase(name="optimizer"),
            },
        }
        for where, of_class in wrappers.items():
            self.in_training.wrap(self._of(where), of_class)

    def _advance(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Around one micro-batch. One that raises, as at the end of the data, leaves no step begun."""
        hooks = self.hooks

        @functools.wraps(original)
        def advance(epoch: Any, *args: Any, **kwargs: Any) -> Any:
            if hooks.active and not self._is_in_step and self.loop is not None:
                self._is_in_step = self._is_first = True
                hooks.step_start()
            try:
                return original(epoch, *args, **kwargs)
            except BaseException:
                self._is_in_step = False
                raise

        return advance

    def _batch_to_device(self, original: Callable[..., Any]) -> Callable[..., Any]:
        hooks, moving = self.hooks, phase_timer(self.hooks, "batch-generator")

        @functools.wraps(original)
        def batch_to_device(strategy: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
            if self.trainer.state.stage is self._stage:  # and not an evaluation in between
                if self.loop is None:
                    self._is_in_step = self._is_first = True
                    hooks.attach(lambda: self.begin(batch))
                if hooks.active:
                    hooks.count(self.add, (batch,), self._is_first)
                    self._is_first = False
            moving.start()
            try:
                return original(strategy, batch, *args, **kwargs)
            finally:
                moving.stop()

        return batch_to_device

    def _run(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Around the optimization of a micro-batch, which is the last of its step or not."""
        hooks = self.hooks

        @functools.wraps(original)
        def run(optimization: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(optimization, *args, **kwargs)
            if hooks.active and self._is_in_step:
                if self.trainer.accumulate_grad_batches == 1:  # the host need not be asked
                    self._is_in_step = False
                    hooks.step_end(False)
                else:
                    hooks.attach(self._end)
            return result

        return run

    def _end(self) -> None:
        if not self.trainer.fit_loop.epoch_loop._should_accumulate():
            self._is_in_step = False
            self.hooks.step_end(False)
