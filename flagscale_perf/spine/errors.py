"""The one exception that reaches a user."""

from __future__ import annotations

import traceback
from types import FrameType, TracebackType


class PerfError(Exception):
    """A mistake the user can mend. Its text says what is wrong, shows the value, and says what to do next.

    Commands print the text alone (no traceback) and exit with code 2.
    """


def raised_by_signal(error: BaseException) -> bool:
    """Whether a handler of a signal raised it: meant for the program around us, wherever in us the signal
    happened to come.

    Python hands the interrupted frame to the handler, which is told from any other function by that.
    """
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        if _is_given(step.tb_next, step.tb_frame):
            return True
        step = step.tb_next
    return False


def _is_given(called: TracebackType, caller: FrameType) -> bool:
    given = called.tb_frame.f_locals.values()
    return any(
        value is caller or (type(value) is tuple and any(each is caller for each in value)) for value in given
    )


def traceback_lines(debug: bool) -> list[str]:
    """Of the exception that is being handled, where --perf-debug asks for it; else none."""
    return traceback.format_exc().splitlines() if debug else []
