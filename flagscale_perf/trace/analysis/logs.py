"""By what a log with lines of a queue is known."""

from __future__ import annotations

from flagscale_perf.analysis.log_files import LogSigns

SIGNS = LogSigns(marks=("[TQ-TRACE] ", "[TQ-DETAIL] "))
