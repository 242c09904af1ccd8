"""Processes of a drawing by the numbers that Perfetto's formats have for them."""

from __future__ import annotations

from collections.abc import Mapping

from flagscale_perf.analysis.timeline import Process

_MADE_UP = 1 << 24  # above every pid of Linux


class Numbers:
    """A process has its pid as its number, or where that is not known or another machine's has it, one that
    no pid can be.
    """

    def __init__(self, processes: Mapping[tuple[object, ...], Process]) -> None:
        """`processes`: those that are known already, by their keys: the others are shown as they are."""
        self._processes = processes
        self._known: dict[tuple[object, ...], int] = {}
        self._same: dict[Process, int] = {}  # its key takes time to make
        self._taken: set[int] = set()

    def of(self, process: Process) -> tuple[int, bool]:
        """The number, and whether it is the first time that it is asked for."""
        found = self._same.get(process)
        if found is not None:
            return found, False
        is_new = process.key not in self._known
        if is_new:
            number = process.pid
            if number is None or number in self._taken or not 0 < number < _MADE_UP:
                number = _MADE_UP + len(self._known)
            self._taken.add(number)
            self._known[process.key] = number
        self._same[process] = self._known[process.key]
        return self._same[process], is_new

    def shown(self, process: Process) -> Process:
        """As it is known best."""
        return self._processes.get(process.key, process)


def sort_index(process: Process) -> int:
    """Ranks first: their order is by stage, then by replica."""
    return _MADE_UP if process.rank is None else process.rank
