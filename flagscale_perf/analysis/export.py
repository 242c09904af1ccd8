"""How a job's run files are written in a format of another system."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flagscale_perf.analysis.job import Job


@dataclass(frozen=True)
class Export:
    """One format of other systems that a job's run files can be written in.

    Attributes:
        lines: what is written, made while they are read.
        suffix: of the file, without its point.
        about: what it is for, in a few words.
        send: sends it to an address and returns how many spans; None where the format has no such way.
    """

    lines: Callable[[Job], Iterable[str]]
    suffix: str
    about: str
    send: Callable[[Job, str], int] | None = None
