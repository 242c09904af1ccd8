"""What takes time in Megatron-Core's own methods and has no timer: zeroing the gradient buffers passes over the
memory of every gradient, and whether a result is valid is agreed on by all ranks of the job. Wrapped only
while phases are recorded.
"""

from __future__ import annotations

import sys

from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.wrappers import phased
from flagscale_perf.training.phases import AGREEMENT, ZERO_GRAD

# Module -> class, method and the phase it is.
CORE_PHASES = {
    "megatron.core.distributed.distributed_data_parallel": (
        "DistributedDataParallel",
        "zero_grad_buffer",
        ZERO_GRAD,
    ),
    "megatron.core.rerun_state_machine": ("RerunStateMachine", "should_run_forward_backward", AGREEMENT),
}


def patch_core(hooks: TrainingHooks, patches: Patches) -> None:
    """Wraps these methods where they are loaded; a Megatron-Core without one of them is left alone."""
    for module, (class_name, name, phase) in CORE_PHASES.items():
        owner = getattr(sys.modules.get(module), class_name, None)
        if original := getattr(owner, name, None):
            patches.set(owner, name, phased(original, hooks, phase))
