"""What the processes of a run say of themselves: what they slept on purpose, and when they came to a message.

A busy machine lets nobody sleep for exactly as long as was asked, and takes the processor away from whom it
likes. So what was measured is held against this, not against what was planted.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Said(NamedTuple):
    """One thing that a rank did.

    Attributes:
        step: of the training; 0 before it.
        slept_ns: of it, on purpose.
        begin_ns, end_ns: monotonic marks, the same clock in all processes of a machine.
    """

    rank: int
    what: str
    step: int
    slept_ns: int
    begin_ns: int
    end_ns: int


def say(what: str, slept_ns: int, begin_ns: int, end_ns: int) -> None:
    """Adds a line to what this rank has said, in the working directory."""
    from megatron.training import global_vars

    rank = os.environ["RANK"]
    step = getattr(global_vars._GLOBAL_ARGS, "curr_iteration", -1) + 1  # the host's count begins with 0
    with open(f"said_{rank}.csv", "a") as file:
        file.write(f"{rank},{what},{step},{slept_ns},{begin_ns},{end_ns}\n")


def said(directory: Path) -> list[Said]:
    """Of all ranks of the run that had this working directory, each in its order."""
    rows = [row for path in sorted(directory.glob("said_*.csv")) for row in csv.reader(path.open())]
    return [Said(int(rank), what, *map(int, numbers)) for rank, what, *numbers in rows]


def slept(found: list[Said], is_meant: Callable[[Said], bool]) -> int:
    """Nanoseconds that were slept on purpose in what is meant."""
    return sum(each.slept_ns for each in found if is_meant(each))
