#!/usr/bin/env python3
"""Measures links, collectives and memory: `flagscale-perf bench bandwidth`, with its options.

python scripts/gpu_bandwidth_test.py --quick -o outputs/bench
"""

from __future__ import annotations

import sys

from flagscale_perf.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "bandwidth", *sys.argv[1:]]))
