#!/usr/bin/env python3
"""Draws the six pictures of a profile, and writes its other files: `flagscale-perf profile report`.

python scripts/qwen3_visualizer.py outputs/profile --out outputs/pictures
"""

from __future__ import annotations

import sys

from flagscale_perf.cli import main

if __name__ == "__main__":
    sys.exit(main(["profile", "report", *sys.argv[1:]]))
