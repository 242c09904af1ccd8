"""What every host wraps a loop's functions with; arguments, results and exceptions pass untouched."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from flagscale_perf.hooks import Pause, TrainingHooks
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.timers import phase_timer
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.training.phases import AGREEMENT, PHASE_OF, PHASES, ZERO_GRAD

# Module -> class, method and the phase it is.
CORE_PHASES = {
    "megatron.core.distributed.distributed_data_parallel": (
        "DistributedDataParallel",
        "zero_grad_buffer",
        ZERO_GRAD,
    ),
    "megatron.core.rerun_state_machine": ("RerunStateMachine", "should_run_forward_backward", AGREEMENT),
}


def ending(original: Callable[..., Any], hooks: TrainingHooks, in_training: Patches) -> Callable[..., Any]:
    """Around `train`: training ends, and `in_training` is undone, when it returns or raises anything."""

    @functools.wraps(original)
    def train(*args: Any, **kwargs: Any) -> Any:
        try:
            result = original(*args, **kwargs)
        except BaseException as error:  # SystemExit and KeyboardInterrupt end a training, too; raised again
            hooks.attach(in_training.undo)
            hooks.train_end(error)
            raise
        hooks.attach(in_training.undo)
        hooks.train_end(None)
        return result

    return train


def before(original: Callable[..., Any], act: Callable[[], None]) -> Callable[..., Any]:
    """Acts before each call."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        act()
        return original(*args, **kwargs)

    return call


def after(original: Callable[..., Any], act: Callable[[], None]) -> Callable[..., Any]:
    """Acts once each call has returned."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        act()
        return result

    return call


def leaving(original: Callable[..., Any], hooks: TrainingHooks) -> Callable[..., Any]:
    """Around what the host calls first when its loop is over."""
    return before(original, lambda: hooks.loop_left() if hooks.active else None)


def paused(original: Callable[..., Any], hooks: TrainingHooks, kind: Pause) -> Callable[..., Any]:
    """Around evaluation or the saving of a checkpoint."""

    @functools.wraps(original)
    def paused_call(*args: Any, **kwargs: Any) -> Any:
        if not hooks.active:
            return original(*args, **kwargs)
        hooks.pause(kind)
        try:
            return original(*args, **kwargs)
        finally:
            if hooks.active:
                hooks.resume(kind)

    return paused_call


def data_skipped(original: Callable[..., Any], hooks: TrainingHooks) -> Callable[..., Any]:
    """Around what passes over one iteration's data."""

    @functools.wraps(original)
    def dummy_train_step(*args: Any, **kwargs: Any) -> Any:
        start_ns = monotonic_ns()
        result = original(*args, **kwargs)
        if hooks.active:
            hooks.data_skipped(start_ns)
        return result

    return dummy_train_step


def phased(original: Callable[..., Any], hooks: TrainingHooks, name: str) -> Callable[..., Any]:
    """Around what is a phase by itself; `name` as a timer's."""
    timer = phase_timer(hooks, name)

    @functools.wraps(original)
    def phased_call(*args: Any, **kwargs: Any) -> Any:
        timer.start()
        try:
            return original(*args, **kwargs)
        finally:
            timer.stop()

    return phased_call


def opening(original: Callable[..., Any], hooks: TrainingHooks, name: str) -> Callable[..., Any]:
    """Around what begins a phase that lasts to the end of the train step."""
    return before(original, phase_timer(hooks, name).start)


def patch_log(training_log: Any, hooks: TrainingHooks, patches: Patches) -> None:
    """Wraps what the host's `training_log` prints its line with, in the module that has both."""
    owner = sys.modules.get(getattr(training_log, "__module__", ""))
    patches.wrap(owner, {"print_rank_last": functools.partial(_printed, hooks=hooks)})


def _printed(original: Callable[..., Any], hooks: TrainingHooks) -> Callable[..., Any]:
    @functools.wraps(original)
    def print_rank_last(message: Any) -> Any:
        if hooks.active:
            hooks.printed(message)
        return original(message)

    return print_rank_last


def patch_core(hooks: TrainingHooks, patches: Patches) -> None:
    """Wraps what takes time in Megatron-Core's own methods and has no timer, where that is loaded: zeroing
    the gradient buffers passes over the memory of every gradient, and whether a result is valid is agreed on
    by all ranks. A Megatron-Core without one of them is left alone.
    """
    for module, (class_name, name, phase) in CORE_PHASES.items():
        owner = getattr(sys.modules.get(module), class_name, None)
        patches.wrap(owner, {name: functools.partial(phased, hooks=hooks, name=phase)})


def missing_phases() -> list[str]:
    """What is lost by methods that the Megatron-Core which is loaded does not have."""
    if "megatron.core" not in sys.modules:
        return []
    return [
        cost_of_phase(phase)
        for module, (class_name, name, phase) in CORE_PHASES.items()
        if not hasattr(getattr(sys.modules.get(module), class_name, None), name)
    ]


def cost_of_phase(phase: str) -> str:
    """What is not known without the method that is this phase, named as a timer."""
    return f"the phase {PHASES[PHASE_OF[phase]]} (it counts to other)"
