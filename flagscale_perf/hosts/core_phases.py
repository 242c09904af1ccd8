"""What takes time in Megatron-Core's own methods and no host's timer tells: zeroing the gradient buffers passes over the memory of every
gradient, and whether a result is valid is agreed on by all ranks of the job.
"""

from __future__ import annotations

from types import ModuleType

from flagscale_perf.core.phases import AGREEMENT, ZERO_GRAD
from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.wrappers import phased

# Module -> class, method and the phase it is.
CORE_PHASES = {
    "megatron.core.distributed.distributed_data_parallel": ("DistributedDataParallel", "zero_grad_buffer", ZERO_GRAD),
    "megatron.core.rerun_state_machine": ("RerunStateMachine", "should_run_forward_backward", AGREEMENT),
}


def patch_core(module: ModuleType, hooks: TrainingHooks, patches: Patches) -> None:
    """Wraps the method of one of these modules; a Megatron-Core without it is left alone."""
    class_name, name, phase = CORE_PHASES[module.__name__]
    owner = getattr(module, class_name, None)
    if original := getattr(owner, name, None):
        patches.set(owner, name, phased(original, hooks, phase))
