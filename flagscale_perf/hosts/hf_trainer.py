"""Hugging Face's `Trainer` (transformers): an unmodified script, whose training is known like Megatron's.

A step is from the host's call for its micro-batches, which loads them, to the end that it tells its
callbacks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from flagscale_perf.hosts import core_loop, trainer_loop
from flagscale_perf.hosts.patching import Wrapper
from flagscale_perf.hosts.timers import phase_timer, time_mark
from flagscale_perf.hosts.trainer_loop import TrainerHost
from flagscale_perf.hosts.wrappers import after, before, paused, phased

TRAINER_MODULE = "transformers.trainer"
_SCALING = ("DEEPSPEED", "MEGATRON_LM")  # the loss by themselves, and pass over updates
# What of the Trainer must be there, as since transformers 4.46; without one of them it is left alone.
POINTS = ("train", "get_batch_samples", "compute_loss", "evaluate", "_save_checkpoint")


class _Told:
    """See `trainer_loop.Trainer`."""

    def __init__(self, trainer: Any) -> None:
        args, accelerator = trainer.args, trainer.accelerator
        self.host = f"transformers {core_loop.version_of('transformers')} Trainer"
        self.model = accelerator.unwrap_model(trainer.model)
        self.rank, self.world_size = int(args.process_index), int(args.world_size)
        self.data_parallel = self.world_size // int(getattr(self.model, "_tp_size", None) or 1)
        self.accumulated = args.gradient_accumulation_steps
        self.precision = "bf16" if args.bf16 else "fp16" if args.fp16 else ""
        self.steps, self.missing = trainer.state.max_steps, list[str]()
        self.arguments = args.to_dict()
        # Both as the host counts and asks, each step without a function of ours.
        self.finished: Callable[[], int] = functools.partial(getattr, trainer.state, "global_step")
        is_scaled = getattr(accelerator, "scaler", None) or accelerator.distributed_type in _SCALING
        asked = functools.partial(getattr, accelerator, "optimizer_step_was_skipped")
        self.skipped: Callable[[], bool] | None = asked if is_scaled else None


class HuggingFace(TrainerHost):
    """Of the Trainer's module only `train` is wrapped all the time."""

    def patch(self, module: ModuleType) -> None:
        """Wraps the beginning of a training. A Trainer without what is called in one is left alone."""
        is_known = all(hasattr(module.Trainer, name) for name in POINTS)
        if is_known and hasattr(module.CallbackHandler, "on_step_end"):
            self._module = module
            self.hooks.time_mark = time_mark
            self.patches.wrap(module.Trainer, {"train": self.run})

    def told(self, trainer: Any) -> trainer_loop.Trainer:
        """Its arguments and its state."""
        return _Told(trainer)

    def patch_training(self) -> None:
        """Wraps what a training calls, until it ends."""
        module, hooks, patches = self._module, self.hooks, self.in_training
        optimizer = phase_timer(hooks, "optimizer")
        wrappers: dict[str, Wrapper] = {
            "get_batch_samples": self._get_batch_samples,
            "compute_loss": functools.partial(phased, hooks=hooks, name="forward-compute"),
            "evaluate": functools.partial(paused, hooks=hooks, kind="eval"),
            "_save_checkpoint": functools.partial(paused, hooks=hooks, kind="checkpoint"),
        }
        patches.wrap(module.Trainer, wrappers)
        backward: Wrapper = functools.partial(phased, hooks=hooks, name="backward-compute")
        patches.wrap(getattr(module, "Accelerator", None), {"backward": backward})
        patches.wrap(
            module.CallbackHandler,
            {
                "on_pre_optimizer_step": functools.partial(after, act=optimizer.start),
                "on_optimizer_step": functools.partial(before, act=optimizer.stop),
                "on_step_end": self._on_step_end,
            },
        )

    def _get_batch_samples(self, original: Callable[..., Any]) -> Callable[..., Any]:
        hooks, loading = self.hooks, phase_timer(self.hooks, "batch-generator")

        @functools.wraps(original)
        def get_batch_samples(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            if trainer is not self.trainer:
                return original(trainer, *args, **kwargs)
            if hooks.active:
                hooks.step_start()
                loading.start()
            found = original(trainer, *args, **kwargs)
            if hooks.active:
                loading.stop()
            elif self.loop is None:
                hooks.attach(lambda: self.begin(found[0][0] if found[0] else None))
            if hooks.active:
                hooks.count(self.add, found[0], True)
            return found

        return get_batch_samples

    def _on_step_end(self, original: Callable[..., Any]) -> Callable[..., Any]:
        hooks = self.hooks

        @functools.wraps(original)
        def on_step_end(handler: Any, args: Any, state: Any, control: Any, *more: Any, **kwargs: Any) -> Any:
            if hooks.active and self.trainer is not None and state is self.trainer.state:
                hooks.step_end(True)
            return original(handler, args, state, control, *more, **kwargs)

        return on_step_end
