"""How often a run that becomes slower within itself is found, how often a healthy one is called so, and how
far from the truth the place is.

python benchmarks/slowdowns.py

Simulated steps (tests/simulated.py), each phase with a memory of its own and heavy tails.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.training.analysis.findings.anatomy import Anatomy
from flagscale_perf.training.analysis.findings.slowdown import slowdown_of
from tests.simulated import Process, simulate

SIZES, LENGTHS, HEALTHY, PLANTED = (0.02, 0.04, 0.1, 0.2), (60, 300, 1000, 2000), 200, 20
PHASES = {"every phase": {"data_loading", "forward", "backward", "optimizer", "other"},
          "forward and backward": {"forward", "backward"}, "backward": {"backward"}}  # fmt: skip
SHARES = {"data_loading": 0.02, "forward": 0.30, "backward": 0.55, "optimizer": 0.05, "other": 0.08}


def planted(seed: int, steps: int, size: float, names: set[str], since: int) -> Anatomy:
    """A run whose steps are longer by `size` of one from step `since` on, spread over these phases."""
    whole = sum(SHARES[name] for name in names)
    slower = {name: size * SHARES[name] / whole for name in names}
    usual, slow = simulate(seed, steps, Process()), simulate(seed, steps, Process(), **slower)
    return Anatomy([*usual[:since], *slow[since:]])


def main() -> int:
    """Prints the tables."""
    print(head("training"))
    for steps in LENGTHS:
        false = sum(
            slowdown_of(planted(seed, steps, 0, {"other"}, steps)) is not None for seed in range(HEALTHY)
        )
        print(f"{steps:>5} steps, healthy: {false} of {HEALTHY} called slower", flush=True)
    print(
        f"\n{'steps':>5} {'where':22} {'from':>5} {'size':>5} {'found':>9} {'off, steps (median, most)':>27}"
    )
    for steps in LENGTHS:
        for where, names in PHASES.items():
            for share in (0.5, 0.6):
                since = int(steps * share)
                for size in SIZES:
                    found = [slowdown_of(planted(seed, steps, size, names, since)) for seed in range(PLANTED)]
                    off = [abs(one.span[0] - since) for one in found if one is not None]
                    errors = f"{statistics.median(off):g}, {max(off)}" if off else "-"
                    rate = f"{len(off)} of {PLANTED}"
                    print(f"{steps:>5} {where:22} {share:>5} {size:>5} {rate:>9} {errors:>27}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
