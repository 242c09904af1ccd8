"""The one exception that reaches a user."""

from __future__ import annotations


class PerfError(Exception):
    """A mistake the user can mend. Its text says what is wrong, shows the value, and says what to do next.

    Commands print the text alone (no traceback) and exit with code 2.
    """
