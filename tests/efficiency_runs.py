"""An experiment in parallel efficiency that can be worked out by hand.

A batch takes 1 s on one device and 0.8 s on two; a pipeline of two stages makes 1200 tokens/s where one
device makes 1000.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flagscale_perf.analysis.job import open_session
from flagscale_perf.bench.analysis.source import Part, read_bench
from flagscale_perf.bench.recording import Clock
from tests.bench_runs import book_in

SIZES = {"batch": 1, "seq": 128, "output": 16}
ARMS = {
    "single": {"arm": "single", "tp": 1, "pp": 1},
    "TP 2": {"arm": "TP 2", "tp": 2, "pp": 1},
    "PP 2": {"arm": "PP 2", "tp": 1, "pp": 2},
}
BATCH: dict[str, Any] = {**SIZES, "in_flight": 1, "job": "batch"}
FLOW: dict[str, Any] = {**SIZES, "in_flight": 8, "job": "flow"}


def parallel_part(directory: Path) -> Part:
    with book_in(directory) as book, book.part("parallelism", None, {"device": "GPU", "devices": 2}) as part:
        for arm, seconds in (("single", 1.0), ("TP 2", 0.8)):
            for repetition, change in enumerate((-0.1, 0.0, 0.1)):
                case = {**ARMS[arm], **BATCH, "repetition": repetition}
                part.point("duration", "s", case, [seconds + change], Clock(1, 2))
        for arm, rate in (("single", 1000.0), ("PP 2", 1200.0)):
            part.point("tokens", "tokens/s", {**ARMS[arm], **FLOW, "repetition": 0}, [rate], Clock(1, 2))
        part.value("memory", "GB", ARMS["TP 2"], 4.0, "")
    return read_bench(open_session(book.path)).parts["parallelism"]
