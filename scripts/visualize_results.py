#!/usr/bin/env python3
"""Writes the files and pictures of experiments again (`flagscale-perf bench report`).

python scripts/visualize_results.py --results-dir outputs/bench
"""

from __future__ import annotations

import sys

from flagscale_perf.cli import main

if __name__ == "__main__":
    words = [word.removeprefix("--results-dir=") for word in sys.argv[1:] if word != "--results-dir"]
    sys.exit(main(["bench", "report", *words]))
