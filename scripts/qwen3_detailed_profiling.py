#!/usr/bin/env python3
"""Profiles a model layer by layer and operator by operator: `flagscale-perf profile run`, with its options.

python scripts/qwen3_detailed_profiling.py --profile-steps 3 --num-tokens 50 --dir outputs/profile
"""

from __future__ import annotations

import sys

from flagscale_perf.cli import main

if __name__ == "__main__":
    sys.exit(main(["profile", "run", *sys.argv[1:]]))
