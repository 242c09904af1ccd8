"""By what a performance log is known."""

from __future__ import annotations

from flagscale_perf.analysis.log_files import LogSigns
from flagscale_perf.rpc.log import TITLE

SIGNS = LogSigns(title=TITLE)
