#!/usr/bin/env python3
"""The bandwidth test on ranks that somebody else starts, on one node or several:

torchrun --nproc_per_node=2 scripts/distributed_benchmark.py --quick -o outputs/bench
"""

from __future__ import annotations

import sys

from flagscale_perf.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "bandwidth", "--joined", *sys.argv[1:]]))
