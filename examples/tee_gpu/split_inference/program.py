"""How the programs end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from flagscale_perf.cli import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED


def run_program(main: Callable[[], int]) -> None:
    """Ends the process as `main` says, and without a traceback where its reader has gone (`| head -1`) or
    Ctrl-C is pressed.
    """
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends: into nothing, instead of raising again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.exit(code)
