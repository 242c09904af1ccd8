"""Names in FlagScale's own performance monitor of figures that are called otherwise here.

They are written under both names, so that programs that read its files read this package's, too.
docs/hosts.md has the table, with what differs in the figures themselves.
"""

from __future__ import annotations

# In each kind of file: FlagScale's name -> the key of the figure here. Curves are TensorBoard's and W&B's.
LOGS, STATISTICS, CURVES = "iteration_logs", "final_statistics", "TensorBoard"
NAMES: dict[str, dict[str, str]] = {
    LOGS: {
        "TFLOPS_total": "tflops",
        "step_time_ms": "iteration_ms",
        "memory_GB": "memory_gb",
        "peak_memory_GB": "memory_peak_gb",
    },
    STATISTICS: {
        "avg_tflops_total": "avg_tflops",
        "avg_step_time_ms": "avg_iteration_ms",
        "min_step_time_ms": "min_iteration_ms",
        "max_step_time_ms": "max_iteration_ms",
    },
    CURVES: {"performance/avg_step_time_ms": "iteration_ms"},
}
