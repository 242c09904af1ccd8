#!/usr/bin/env python3
"""What tensor and pipeline parallelism gain and lose (`flagscale-perf bench parallelism`).

python scripts/parallelism_overhead.py --test-all --model /models/Llama-2-7b-hf
"""

from __future__ import annotations

import sys

from flagscale_perf.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "parallelism", *sys.argv[1:]]))
