"""The monitor for a training loop of your own: see `PerfMonitor` and examples/megatron_core_loop."""

from __future__ import annotations

from flagscale_perf.hosts.core_loop import Training
from flagscale_perf.hosts.manual import PerfMonitor, TrainStep

__all__ = ["PerfMonitor", "TrainStep", "Training"]
