"""What one `PerfLogger.step` costs the training thread, packing included, while a writer process drains the
ring.

python benchmarks/bench_ring.py [STEPS]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from time import perf_counter_ns, sleep

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.perf_logger import PerfLogger
from tests.fakes import make_facts, make_step

PAUSE_EVERY, PAUSE_S = 5000, 0.2  # lets the writer keep up, as steps of a real training do


def main() -> None:
    """Measures and prints: machine, n, median, p99, greatest, drops."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    config = PerfConfig(enable_perf_monitor=True, perf_log_dir=tempfile.mkdtemp(prefix="bench_ring_"))
    logger = PerfLogger.start(config, make_facts(), print)
    costs_ns, empty_ns = [], []
    for iteration in range(1, steps + 1):
        record = make_step(iteration, model_flops=3 * 10**20)
        start = perf_counter_ns()
        logger.step(record)
        end = perf_counter_ns()
        costs_ns.append(end - start)
        empty_ns.append(perf_counter_ns() - end)
        if iteration % PAUSE_EVERY == 0:
            sleep(PAUSE_S)
    summary = logger.close("completed", timeout_s=30)
    floor_ns = sorted(empty_ns)[len(empty_ns) // 2]
    costs_ns.sort()
    print(head("spine", "perf_logger.py"))
    print(f"n        {steps} (pair of clock readings alone: {floor_ns} ns, included below)")
    print(f"median   {costs_ns[steps // 2] / 1000:.2f} us")
    print(f"p99      {costs_ns[steps * 99 // 100] / 1000:.2f} us")
    print(f"greatest {costs_ns[-1] / 1000:.2f} us")
    print(f"summary  {summary}")


if __name__ == "__main__":
    main()
