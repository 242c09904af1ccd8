"""What the training thread does most, taking marks and packing records, is done by the C extension `_hot`
where that was built, else in Python. The same comes out of both.

What is made looks at `extension` then, and nothing does in a step; it is None for plain Python.
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
    """The extension; None where it was not built, or for another version, or FLAGSCALE_PERF_PLAIN_PYTHON is
    set.
    """
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
    """Empty ones. Beyond `room`, which ones are kept is open."""
    return Marks(room) if extension is None else extension.Marks(room)


def _span(numbers: list[int]) -> tuple[int, int, bool]:
    """The lowest and the highest, and whether they follow one another in their order. For a list with
    something in it.
    """
    low, high = min(numbers), max(numbers)
    return low, high, high - low + 1 == len(numbers) and numbers == list(range(low, high + 1))


span: Callable[[list[int]], tuple[int, int, bool]] = getattr(extension, "span", _span)
