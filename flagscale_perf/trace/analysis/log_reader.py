"""Sums up the trace lines of logs, and what is missing from them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from flagscale_perf.analysis.log_files import LogChunks
from flagscale_perf.trace.analysis.lines import Calls, Column, Operations, Stages, TraceLines
from flagscale_perf.trace.analysis.sums import NS, Sums

NO_TRACE = "N/A"


@dataclass
class Losses:
    """Losses of a log, as far as they can be known.

    Attributes:
        repeated: lines that Ray left out as repetitions.
        lossy: the processes of those lines.
        torn: trace lines that could not be read.
        unfinished: calls that began in the text and did not end.
        dropped: records that a ring had no room for.
        lost: calls and operations that were made and did not come, by their numbers.
        twice: calls and operations that were read more than once, by their numbers.
        uncertain: processes of which it is not known whether something is missing.
        troubles: files whose end could not be read, and why.
    """

    repeated: int = 0
    lossy: set[str] = field(default_factory=set)
    torn: int = 0
    unfinished: int = 0
    dropped: int = 0
    lost: int = 0
    twice: int = 0
    uncertain: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        return vars(self) | {"lossy": sorted(self.lossy)}


class LogReader:
    """Adds lines of text to the sums.

    Attributes:
        lines: trace lines that have been read.
    """

    def __init__(self, sums: Sums, losses: Losses) -> None:
        self._sums, self._losses = sums, losses
        self.lines = self._started = 0
        self._numbers: dict[str, Numbers] = defaultdict(Numbers)

    def read(self, chunks: LogChunks) -> None:
        """Reads one file. Raises PerfError if it cannot be read at all."""
        found, losses = TraceLines(chunks.path.name), self._losses
        for column in found.read(chunks):
            self._add(column)
        self.lines += found.lines
        self._started += found.started
        losses.torn += found.torn
        losses.repeated += found.repeated
        losses.lossy |= found.lossy
        if chunks.trouble:
            losses.troubles.append(f"{chunks.path}: {chunks.trouble}")

    def finish(self) -> None:
        """Works out what is missing, once everything is read."""
        losses = self._losses
        losses.unfinished = max(0, self._started - self._sums.calls)
        losses.lost += sum(max(0, one.missing) for one in self._numbers.values())
        losses.twice += sum(max(0, -one.missing) for one in self._numbers.values())

    def _add(self, column: Column) -> None:
        process = f"process {column.process}" if column.process else "unknown process"
        match column:
            case Stages():
                one = self._sums.of(process, column.function)
                times = [took * NS for took in column.seconds]
                (one.get, one.compute, one.put)[column.stage].extend(times, column.weight)
            case Calls():
                self._calls(process, column)
                self._numbers[column.process].add(column.numbers)
            case Operations():
                self._sums.add_text(process, column)
                self._numbers[column.process].add(column.numbers)

    def _calls(self, process: str, calls: Calls) -> None:
        one = self._sums.of(process, calls.function)
        times = [took * NS for took in calls.seconds]
        one.total.extend(times, calls.weight)
        for took, shares in zip(times, calls.shares, strict=True):
            if shares is not None:
                one.add_shares(took, shares, calls.weight)
        if calls.error:
            one.errors[calls.error] += len(times)
        for trace in calls.traces:
            self._sums.trace("" if trace == NO_TRACE else trace)


class Numbers:
    """Numbers of calls and operations in one process, which have no gaps if nothing is missing.

    Attributes:
        count: how many were read.
    """

    def __init__(self) -> None:
        self.count = self._high = 0
        self._low: int | None = None

    def add(self, numbers: list[int]) -> None:
        """Adds the next numbers."""
        if numbers:
            self.count += len(numbers)
            self._low = min(numbers) if self._low is None else min(self._low, min(numbers))
            self._high = max(self._high, max(numbers))

    @property
    def missing(self) -> int:
        """How many numbers are missing between the first and the last one read; negative if some occur
        twice.
        """
        return 0 if self._low is None else self._high - self._low + 1 - self.count
