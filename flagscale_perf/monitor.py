"""The monitor for a training loop of your own: see `LoopMonitor` and examples/megatron_core_loop."""

from __future__ import annotations

from flagscale_perf.hosts.core_loop import Training
from flagscale_perf.hosts.manual import LoopMonitor, TrainStep

__all__ = ["LoopMonitor", "TrainStep", "Training"]
