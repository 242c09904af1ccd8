"""The run files of one job as one: what several machines wrote, on the clock of the first."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from flagscale_perf.analysis.run_file import RunFile, mates_of
from flagscale_perf.analysis.timeline import Item, Name, Timeline
from flagscale_perf.spine.peers.records import ProcessRecord
from flagscale_perf.spine.records import TYPES, Record, RunHeader


def clock_of(header: RunHeader) -> str:
    """Marks of run files with the same one are on the same clock: that of one start of one machine."""
    return header.boot_id or str(header.host)


class Clocks:
    """What is added to the monotonic marks of each machine for those of the first one, by their times of
    day. Marks that are on one clock keep their distances.
    """

    def __init__(self, first: RunHeader) -> None:
        self._first_ns = first.start_wall_ns - first.start_mono_ns
        self._offsets_ns = {clock_of(first): 0}

    def offset_ns(self, header: RunHeader) -> int:
        """For marks of the run file with this header."""
        own_ns = header.start_wall_ns - header.start_mono_ns
        return self._offsets_ns.setdefault(clock_of(header), own_ns - self._first_ns)


class Job:
    """The records of a run file, and behind them those of the files that other machines of the same job wrote
    at the same time, as if one machine had written all: their marks are on the first file's clock, and
    their processes have numbers that no other one has.

    Attributes:
        header: of the first file.
        files: the first one first; each counts its bad lines once it has been read.
    """

    def __init__(self, path: Path) -> None:
        """Reads the headers. Raises PerfError for a file that is no run file."""
        self.files = [RunFile(each) for each in (path, *mates_of(path))]
        self.header = self.files[0].header
        self._begun: list[tuple[int, RunHeader]] = [(0, self.header)]

    def __iter__(self) -> Iterator[Record]:
        """Every record, each file's behind its header. Raises PerfError if a file cannot be read."""
        clocks, taken = Clocks(self.header), 0
        self._begun = []
        for file in self.files:
            self._begun.append((taken, file.header))
            offset_ns, before = clocks.offset_ns(file.header), taken
            for record in file:
                if isinstance(record, ProcessRecord):
                    taken = max(taken, before + record.number)
                yield _moved(record, before, offset_ns) if before or offset_ns else record

    def origin(self, process: int) -> tuple[RunHeader, int]:
        """The header of the file in which the process is, and its number there; known once that file is
        being read.
        """
        place = bisect_left(self._begun, process, key=lambda one: one[0]) - 1
        before, header = self._begun[max(place, 0)]
        return header, process - before

    def items(self, timeline: Timeline) -> Iterator[Item]:
        """All files drawn on one timeline; where there are several, processes are named with their hosts."""
        for item in timeline.items(self):
            if len(self.files) > 1 and isinstance(item, Name) and item.is_process:
                yield replace(item, text=f"{item.text}@{self._begun[-1][1].host}")
            else:
                yield item


def _moved(record: Record, before: int, offset_ns: int) -> Record:
    """With its process's number after those `before`, and its start on the other clock."""
    if isinstance(record, RunHeader):
        return record
    if isinstance(record, ProcessRecord):
        return replace(record, number=before + record.number, start_ns=record.start_ns + offset_ns)
    changed = {}
    start = TYPES[type(record)].start
    if start is not None and not start.endswith("_wall_ns"):
        changed[start] = getattr(record, start) + offset_ns
    if hasattr(record, "process"):
        changed["process"] = before + record.process
    return record._replace(**changed) if hasattr(record, "_replace") else replace(record, **changed)
