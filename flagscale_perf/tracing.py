"""Tracing of TransferQueue for a program that asks for it itself: see docs/trace.md. One that does not is
traced as well, by TQ_TRACE_ENABLED=1 in its environment.
"""

from __future__ import annotations

from flagscale_perf.hosts.transfer_queue.install import Installation, install
from flagscale_perf.trace.options import TraceOptions
from flagscale_perf.trace.running import step

__all__ = ["Installation", "TraceOptions", "install", "step"]
