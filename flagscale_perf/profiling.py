"""Profiling for a program that asks for it itself: see docs/profile.md.

    with Profiler(model, ProfileOptions(Steps(20, 22), directory)) as profiler:
        for batch in data:
            with profiler.step():
                ...  # forward, backward, optimizer

A training of FlagScale or Megatron-LM is profiled by --perf-profile-steps, a server of vLLM by its
environment.
"""

from __future__ import annotations

from flagscale_perf.hosts.profiling.huggingface import ProfilerCallback, forward_steps
from flagscale_perf.hosts.profiling.place import megatron_rank
from flagscale_perf.profile.options import ProfileOptions, Steps
from flagscale_perf.profile.profiler import Profiler
from flagscale_perf.profile.rank import Rank

__all__ = [
    "ProfileOptions",
    "Profiler",
    "ProfilerCallback",
    "Rank",
    "Steps",
    "forward_steps",
    "megatron_rank",
]
