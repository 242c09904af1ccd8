#!/usr/bin/env python3
"""Profiles a model layer by layer and operator by operator, in vLLM where this Python has it and else in
transformers: `flagscale-perf profile run --engine auto`, with its options.

python scripts/qwen3_detailed_profiling.py --profile-steps 3 --num-tokens 50 --dir outputs/profile
"""

from __future__ import annotations

import sys

from flagscale_perf.cli import main

if __name__ == "__main__":
    sys.exit(main(["profile", "run", "--engine", "auto", *sys.argv[1:]]))
