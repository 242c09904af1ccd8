#!/usr/bin/env python3
"""Latency by sequence length, batch and output (`flagscale-perf bench latency`).

python scripts/latency_vs_sequence_length.py --model /models/Llama-2-7b-hf --results-dir outputs/bench
"""

from __future__ import annotations

import sys

from flagscale_perf.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "latency", *sys.argv[1:]]))
