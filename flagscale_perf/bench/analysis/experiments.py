"""Every experiment that has a report, in the order of the report."""

from __future__ import annotations

from flagscale_perf.bench.analysis import bandwidth, latency, parallelism
from flagscale_perf.bench.analysis.shown import Shown

SHOWN: dict[str, Shown] = {one.name: one for one in (bandwidth.SHOWN, latency.SHOWN, parallelism.SHOWN)}
