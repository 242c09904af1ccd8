"""The one exception that reaches a user."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from types import FrameType, TracebackType


class PerfError(Exception):
    """A mistake the user can correct. The text says what is wrong, shows the value and says what to write.

    Commands print the text without a traceback and exit with code 2.
    """


def did_you_mean(word: str, known: Iterable[str], most: int = 3, prefix: str = "") -> str:
    """The known words nearest to a wrong one, as in `; did you mean mfu or hfu?`; "" where none is near. What
    all of them begin with does not count.
    """
    by_lower = {name.removeprefix(prefix).lower(): name for name in known}
    near = [by_lower[name] for name in _matches(word.removeprefix(prefix), by_lower, most, 0.6)]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def is_misspelt(word: str, known: Iterable[str]) -> bool:
    """Whether a word that is not known is so like a known one that it can hardly mean anything else."""
    known = list(known)
    return word not in known and bool(_matches(word, known, 1, 0.85))


def _matches(word: str, known: Iterable[str], most: int, likeness: float) -> list[str]:
    import difflib  # here: nothing needs it in a training

    return difflib.get_close_matches(word.lower(), list(known), most, likeness)


def raised_by_signal(error: BaseException) -> bool:
    """Whether a signal handler raised it: it is then meant for the program, even if our code was interrupted.

    Such an error must not be swallowed as a failure of the monitor. Python passes the interrupted frame to a
    handler as an argument; so a function that holds its own caller's frame is taken for a handler.
    """
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        if _received_frame(step.tb_next, step.tb_frame):
            return True
        step = step.tb_next
    return False


def _received_frame(called: TracebackType, caller: FrameType) -> bool:
    # A handler that takes *args holds the frame in a tuple.
    return any(
        value is caller or (type(value) is tuple and any(each is caller for each in value))
        for value in called.tb_frame.f_locals.values()
    )


def traceback_lines(debug: bool) -> list[str]:
    """The traceback of the exception that is being handled; none unless --perf-debug asks for it."""
    return traceback.format_exc().splitlines() if debug else []
