"""Megatron-Core's gradient buffers: zeroing them passes over the memory of every gradient, and no timer of a host tells it."""

from __future__ import annotations

from types import ModuleType

from flagscale_perf.core.phases import ZERO_GRAD
from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.timers import own_timers
from flagscale_perf.hosts.wrappers import phased

GRADIENTS_MODULE = "megatron.core.distributed.distributed_data_parallel"


def patch_gradients(module: ModuleType, hooks: TrainingHooks, patches: Patches) -> None:
    """Wraps the one method that does it; a Megatron-Core without it is left alone."""
    model_class = getattr(module, "DistributedDataParallel", None)
    if zero := getattr(model_class, "zero_grad_buffer", None):
        patches.set(model_class, "zero_grad_buffer", phased(zero, own_timers(hooks), ZERO_GRAD))
