"""Megatron-Bridge's `pretrain()`: its own callbacks for the steps, wrapped globals for everything else.

A callback of ours goes into whatever `normalize_callbacks` returns, which `pretrain` looks up in its module.
Callbacks do not say that training ends by SystemExit (`on_train_end` is not called then), that a step is
abandoned, how long evaluation and checkpoints block the loop, and which data is passed over: these functions
are wrapped. Bridge has no argument parser: options come from the environment.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from types import MappingProxyType, ModuleType
from typing import Any

from flagscale_perf.flops_calculator import Packed
from flagscale_perf.hooks import StepNumbers, TrainingHooks
from flagscale_perf.hosts import hook_points
from flagscale_perf.hosts.core_loop import CoreLoop, Training, num_microbatches, version_of
from flagscale_perf.hosts.hook_points import Point, given_to
from flagscale_perf.hosts.patching import Patches, Wrapper
from flagscale_perf.hosts.profiled import begin_profile
from flagscale_perf.hosts.timers import mark_phases, time_mark
from flagscale_perf.hosts.work import Batches, count_work, shows_experts, sources_of
from flagscale_perf.hosts.wrappers import (
    data_skipped,
    ending,
    leaving,
    missing_phases,
    opening,
    patch_core,
    patch_log,
    paused,
)
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.host_arguments import recorded, recorded_environment
from flagscale_perf.training.phases import AGREEMENT
from flagscale_perf.training.work import Microbatch

PACKAGE = "megatron.bridge"
PRETRAIN_MODULE = "megatron.bridge.training.pretrain"
LOOP_MODULE = "megatron.bridge.training.train"

LENGTHS = "resolve_global_flops_runtime_stats"
PACKED = "packed"
# Own loops of Bridge that take no callbacks of ours, by their module.
NOT_RECORDED = {
    "megatron.bridge.training.pretrain_megatron_mimo": (
        "pretrain_megatron_mimo has a loop of its own: nothing of it is recorded"
    )
}
# By the name of the global: what is lost without it; the module of the entry, then that of the loop.
PRETRAIN_POINTS = {
    "normalize_callbacks": "the monitor (no start of training, no steps)",
    "train": "the monitor (no end of training)",
}
LOOP_POINTS = {
    "train_step": Point("a step that the host abandons (it counts as one whose update was skipped)"),
    "evaluate_and_print_results": Point("evaluation time (it counts as iteration time)"),
    "save_checkpoint_and_time": Point("checkpoint time (it counts as iteration time)"),
    "logical_and_across_model_parallel_group": Point("the phase exposed_stat_comm (it counts to other)"),
    "maybe_finalize_async_save": Point(
        "waits for asynchronous checkpoints (they count as iteration time)", also=("finalize_async_saves",)
    ),
    "_delete_cuda_graphs": Point(
        "the end of the last iteration (collecting garbage after the loop counts to it)"
    ),
    "_dummy_train_step": Point(
        "iterations skipped by train.iterations_to_skip as ones of their own (their time "
        "counts to the iteration before)"
    ),
    LENGTHS: Point("the lengths of packed sequences (TFLOPS, MFU and HFU of their steps)", option=PACKED),
}
# Of a dataset: its sequences share rows; the first two since 0.6.
PACKING = (
    "enable_offline_packing",
    "enable_in_batch_packing",
    "packed_sequence_specs",
    "pack_sequences_in_batch",
)


class BridgeLoop(CoreLoop):
    """`hooks.Loop` over Bridge's global state; only reads it.

    Args:
        context: what `on_train_start` was given.
        loop: the module of Bridge's `train`.
        rehearsing: torch.cuda calls land on the CPU.
        given: the arguments of that `train`, by name.

    Attributes:
        step_result: what `train_step` has returned, until it is asked for.
        varies: whether two batches need not be equally long.
    """

    def __init__(
        self,
        context: Any,
        loop: ModuleType,
        rehearsing: bool,
        given: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._state = context.state
        self._loop = loop
        self._given = given
        dataset = context.state.cfg.dataset
        self._packs = _is_packed(dataset)
        self.varies = self._packs or getattr(dataset, "dataloader_type", None) == "batch"
        super().__init__(context.model, self._training(), rehearsing)
        self.step_result: tuple[Any, ...] | None = None

    def microbatch(self) -> Microbatch:
        """Equal samples, unless the dataset says otherwise."""
        is_equal = not (self.varies or getattr(self._state.cfg.dataset, "reset_attention_mask", False))
        return super().microbatch() if is_equal else Microbatch(super().microbatch().chunks)

    def position(self) -> tuple[int, int]:
        """The host counts a step only after `on_train_step_end`."""
        done = self._state.train_state
        return done.step, done.consumed_train_samples

    def numbers(self, result: Any) -> StepNumbers | None:
        """`result` is the callback's context; None for a step that the host abandons without counting it."""
        returned, self.step_result = self.step_result, None
        # (loss, skipped_iter, should_checkpoint, should_exit, ...)
        if returned is not None and returned[3]:
            return None
        microbatches, samples = num_microbatches(), self.skipped_samples()
        return StepNumbers(
            self._state.train_state.step + 1,
            not result.skipped_iter,
            samples,
            samples * self.training.seq_length,
            microbatches,
        )

    def skipped_samples(self) -> int:
        """One global batch, as the host counts it."""
        return self.data_parallel_size() * self.training.micro_batch_size * num_microbatches()

    def data_parallel_size(self) -> int:
        """The size in the host's completed configuration."""
        return int(self._state.cfg.data_parallel_size)

    def model_args(self) -> dict[str, Any]:
        """Raises PerfError where batches differ in length and the host does not say their lengths."""
        if self.varies and not self._has_lengths:
            raise PerfError(
                "model: the dataset is packed, or its dataloader_type is batch: its sequences differ in "
                "length, which this Bridge does not say; their work cannot be counted"
            )
        return super().model_args()

    @functools.cached_property
    def _has_lengths(self) -> bool:
        return bool(hook_points.places(self._loop, (LENGTHS, LOOP_POINTS[LENGTHS]), self._given))

    def lengths(self, sums: tuple[Any, ...]) -> Packed | None:
        """The lengths of the step's sequences, all ranks together, by what the host has resolved of them:
        its sums of lengths (padding at the end of a row included) and of squared lengths. None where these
        are not the true ones: the host takes sequences that are not packed for `seq_length` long each, or
        each data-parallel rank's for as long as this one's.
        """
        tokens, squared_lengths = sums[:2]
        is_of_all_ranks = getattr(self._state, "_flops_requires_global_reduce", True)
        is_nominal = tokens == self.skipped_samples() * self.training.seq_length
        if tokens is None or not (is_of_all_ranks or (self.data_parallel_size() == 1 and not is_nominal)):
            return None
        return Packed(tokens, squared_lengths)

    def facts(self, device: str) -> RunFacts:
        """The facts of the configuration, which Bridge completes during set-up."""
        points = (self._loop, LOOP_POINTS, self._given, {PACKED: self._packs})
        missing = hook_points.missing(*points) + missing_phases()
        if self.varies and not (self._packs and self._has_lengths):
            missing.append(
                "tokens of batches of varying length (each sequence counts as seq_length "
                f"{self.training.seq_length}; TFLOPS are known where the host says the lengths)"
            )
        version = version_of("megatron-bridge", sys.modules.get(PACKAGE))
        return replace(
            self._facts(f"Megatron-Bridge {version}", device, missing),
            arguments=settings_of(self._state.cfg),
            environment=recorded_environment(os.environ),
        )

    def _training(self) -> Training:
        cfg = self._state.cfg
        sizes = (
            cfg.model.seq_length,
            cfg.train.micro_batch_size,
            cfg.train.global_batch_size,
            cfg.train.train_iters,
        )
        return Training(*sizes, *self.position(), cfg.logger.tensorboard_dir)


def settings_of(configuration: Any) -> dict[str, Any]:
    """Those of every section, by their place, such as `dataset.num_workers`."""
    sections = {name: value for name, value in vars(configuration).items() if is_dataclass(value)}
    others = recorded(vars(configuration), sections)
    placed = {
        f"{section}.{name}": each
        for section, value in sections.items()
        for name, each in recorded(vars(value)).items()
    }
    return recorded(others | placed)


def _is_packed(dataset: Any) -> bool:
    given = (getattr(dataset, name, None) for name in PACKING)
    return any(each and getattr(each, "packed_sequence_size", 1) > 0 for each in given)


class BridgeCallback:
    """The callbacks of Bridge's callback manager; only events that have a method here are registered.

    Attributes:
        is_asked: whether the monitor is asked for; known once `pretrain()` has begun.
        in_training: what is put in for a monitored training.
        loop: the training that is under way.
        given: the arguments of its `train`, by name.
    """

    def __init__(self, hooks: TrainingHooks, module: ModuleType, rehearsing: bool) -> None:
        """`module`: of Bridge's `train`."""
        self._hooks = hooks
        self._module = module
        self._rehearsing = rehearsing
        self.is_asked = False
        self.in_training = Patches()
        self.loop: BridgeLoop | None = None
        self.given: Mapping[str, Any] = {}

    def before_train(self, given: Mapping[str, Any]) -> None:
        """The host is about to call `train`, which takes hold of `train_step` before `on_train_start`."""
        self.given = given
        self.in_training.wrap(
            self._module, {"train_step": lambda original: _train_step(original, self._hooks, self)}
        )

    def on_train_start(self, context: Any) -> None:
        """Everything is set up, the loop begins."""
        self._hooks.attach(lambda: self._begin(context))

    def _begin(self, context: Any) -> None:
        self.loop = BridgeLoop(context, self._module, self._rehearsing, self.given)
        self._hooks.train_start(self.loop)
        if self._hooks.active:
            patch_steps(self._module, self._hooks, self, self.in_training)
            sources = sources_of(self.given.get("train_data_iterator")) if self.loop.varies else []
            batches = Batches(sources) if sources else None
            count_work(self._hooks, self.in_training, lambda: batches, shows_experts(self.loop.model_config))
            begin_profile(self._hooks, self.loop, lambda: context.model)

    def on_train_step_start(self, context: Any) -> None:
        """A train step begins."""
        if self._hooks.active:
            self._hooks.step_start()

    def on_train_step_end(self, context: Any) -> None:
        """It has returned; the host has not counted it yet."""
        if self._hooks.active:
            self._hooks.step_end(context)
            if self.loop is not None and self.loop.varies:
                self._hooks.packed(None)  # until the host says the lengths


def patch_bridge(
    pretrain: ModuleType, hooks: TrainingHooks, patches: Patches, rehearsing: bool, is_on: Callable[[], bool]
) -> None:
    """Wraps what `pretrain` looks up in its module. Modules without the required globals are left alone.

    `is_on` is called when `pretrain()` begins: whether the monitor is asked for. It may end the process for a
    wrong option.
    """
    loop = sys.modules.get(LOOP_MODULE)
    if loop is None or not all(hasattr(pretrain, name) for name in PRETRAIN_POINTS):
        return
    hooks.time_mark = time_mark
    callback = BridgeCallback(hooks, loop, rehearsing)
    wrappers: dict[str, Wrapper] = {
        "normalize_callbacks": lambda original: _normalize_callbacks(original, hooks, callback, is_on),
        "train": lambda original: _train(original, hooks, callback),
    }
    patches.wrap(pretrain, wrappers)


def patch_steps(loop: ModuleType, hooks: TrainingHooks, callback: BridgeCallback, patches: Patches) -> None:
    """Wraps what Bridge's loop calls in its steps; with phases asked for, what marks these, too."""
    wrappers: dict[str, Wrapper] = {
        "evaluate_and_print_results": lambda original: paused(original, hooks, "eval"),
        "save_checkpoint_and_time": lambda original: paused(original, hooks, "checkpoint"),
        "maybe_finalize_async_save": lambda original: paused(original, hooks, "checkpoint"),
        "_dummy_train_step": lambda original: data_skipped(original, hooks),
        "_delete_cuda_graphs": lambda original: leaving(original, hooks),
        LENGTHS: lambda original: _lengths(original, hooks, callback),
    }
    if hooks.takes_marks and callback.loop is not None:
        wrappers["logical_and_across_model_parallel_group"] = lambda original: opening(
            original, hooks, AGREEMENT
        )
        mark_phases(callback.loop.timers(), hooks, patches)
        patch_core(hooks, patches)
    patch_log(getattr(loop, "training_log", None), hooks, patches)
    hook_points.wrap((loop, LOOP_POINTS), wrappers, callback.given, patches)


def _normalize_callbacks(
    original: Callable[..., Any], hooks: TrainingHooks, callback: BridgeCallback, is_on: Callable[[], bool]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def normalize_callbacks(callbacks: Any = None) -> Any:
        callback.is_asked = is_on()
        manager = original(callbacks)
        if not callback.is_asked:
            return manager
        if manager is None:
            manager = original([])
        hooks.attach(lambda: _add_once(manager, callback))
        return manager

    return normalize_callbacks


def _add_once(manager: Any, callback: BridgeCallback) -> None:
    # A manager of the user's own may come to pretrain() a second time.
    if callback.on_train_start not in manager.list_callbacks("on_train_start"):
        manager.add(callback)


def _train(
    original: Callable[..., Any], hooks: TrainingHooks, callback: BridgeCallback
) -> Callable[..., Any]:
    run = ending(original, hooks, callback.in_training)

    @functools.wraps(original)
    def train(*args: Any, **kwargs: Any) -> Any:
        if callback.is_asked:
            hooks.attach(lambda: callback.before_train(given_to(original, args, kwargs)))
        try:
            return run(*args, **kwargs)
        finally:
            callback.loop, callback.given = None, {}  # the host's model hangs on them

    return train


def _train_step(
    original: Callable[..., Any], hooks: TrainingHooks, callback: BridgeCallback
) -> Callable[..., Any]:
    @functools.wraps(original)
    def train_step(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if hooks.active and callback.loop is not None:
            callback.loop.step_result = result
        return result

    return train_step


def _lengths(
    original: Callable[..., Any], hooks: TrainingHooks, callback: BridgeCallback
) -> Callable[..., Any]:
    @functools.wraps(original)
    def resolve(*args: Any, **kwargs: Any) -> Any:
        sums, loop = original(*args, **kwargs), callback.loop
        if hooks.active and loop is not None and loop.varies:
            hooks.attach(lambda: hooks.packed(loop.lengths(sums)))
        return sums

    return resolve
