"""`python -m flagscale_perf.launch SCRIPT ARGS...`: run an unmodified training script with the monitor's
hooks in.
"""

from __future__ import annotations

import sys

from flagscale_perf.hosts.launcher import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
