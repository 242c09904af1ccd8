"""Whether the C extension `_hot` or plain Python does what the training thread does most: take marks and pack
records. Both give the same result.

`extension`, None for plain Python, is looked at when an object is made, never in a step.
"""

from __future__ import annotations

import importlib
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from types import ModuleType

from flagscale_perf import __version__

PLAIN_VARIABLE = "FLAGSCALE_PERF_PLAIN_PYTHON"


def load() -> ModuleType | None:
    """The extension; None if it was not built for this version or FLAGSCALE_PERF_PLAIN_PYTHON is set."""
    if os.environ.get(PLAIN_VARIABLE):
        return None
    try:
        found = importlib.import_module("flagscale_perf.spine._hot")
    except ImportError:
        return None
    return found if __version__ == found.VERSION else None


extension = load()


class Marks:
    """Integers, in order; `room` of them at most.

    Attributes:
        add: keeps one more. A method of a container, as it is called for every mark.
        clear: forgets all.
        take: returns those kept since then.
    """

    __slots__ = ("add", "clear", "take")

    def __init__(self, room: int) -> None:
        held: deque[int] = deque(maxlen=room)
        self.add: Callable[[int], None] = held.append
        self.clear: Callable[[], None] = held.clear
        self.take: Callable[[], tuple[int, ...]] = partial(tuple, held)


def new_marks(room: int) -> Marks:
    """Empty marks. Which are kept beyond `room` is not defined."""
    return Marks(room) if extension is None else extension.Marks(room)
