#!/usr/bin/env python3
"""The whole experiment: a model is profiled, in vLLM where this Python has it and else in transformers, and
every file written (`flagscale-perf profile run --engine auto`).

python scripts/run_qwen3_profiling_experiment.py --tp 1 --pp 1 --num-tokens 50 --profile-steps 3
python scripts/run_qwen3_profiling_experiment.py --preset detailed --model /models/Qwen3-0.6B
"""

from __future__ import annotations

import sys

from flagscale_perf.cli import main

if __name__ == "__main__":
    sys.exit(main(["profile", "run", "--engine", "auto", *sys.argv[1:]]))
