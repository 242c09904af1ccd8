"""`python -m flagscale_perf`: the same as `flagscale-perf`, where its directory is not on the PATH."""

from __future__ import annotations

import sys

from flagscale_perf.cli import main

sys.exit(main())
