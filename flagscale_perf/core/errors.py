"""The one exception that reaches a user."""

from __future__ import annotations

import traceback


class PerfError(Exception):
    """A mistake the user can mend. Its text says what is wrong, shows the value, and says what to do next.

    Commands print the text alone (no traceback) and exit with code 2.
    """


def traceback_lines(debug: bool) -> list[str]:
    """Of the exception that is being handled, where --perf-debug asks for it; else none."""
    return traceback.format_exc().splitlines() if debug else []
