"""How a run file is written in a format of another system."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flagscale_perf.analysis.run_file import RunFile


@dataclass(frozen=True)
class Export:
    """One format of other systems that a run file can be written in.

    Attributes:
        lines: what is written, made while the file is read.
        suffix: of the file, without its point.
        about: what it is for, in a few words.
        send: sends it to an address and returns how many spans; None where the format has no such way.
    """

    lines: Callable[[RunFile], Iterable[str]]
    suffix: str
    about: str
    send: Callable[[RunFile, str], int] | None = None
