"""`python -m flagscale_perf.cli`, the same as `flagscale-perf`."""

from __future__ import annotations

import sys

from flagscale_perf.cli import main

sys.exit(main())
