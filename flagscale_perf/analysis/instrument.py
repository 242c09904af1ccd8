"""What an instrument offers to the commands that read run files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.compare.compare import CompareOptions, Comparison
from flagscale_perf.analysis.runs import Found
from flagscale_perf.analysis.timeline import Timeline
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import RunHeader


class Live(Protocol):
    """One session as far as it has been read, in bounded memory."""

    def add(self, record: Any) -> None:
        """Takes the session's next record."""

    def report(self, has_writer: bool, now_wall_ns: int) -> Report:
        """The screen of `watch`; `has_writer` says whether a process still writes the run file."""

    def before(self) -> str:
        """One line about it when a newer session follows."""


def _not_offered(*_: Any) -> Any:
    raise PerfError(
        "the instrument that recorded this has nothing for this command or option; try `report` alone"
    )


def _no_sessions(directory: Path) -> Any:
    raise PerfError(
        f"--all-sessions adds up where the time of trainings went, and {str(directory)!r} has no training;"
        " leave it out for the newest session, or give --session ID"
    )


@dataclass(frozen=True)
class Instrument:
    """Its analysis. Each function raises PerfError for a file that it cannot read; those that an instrument
    leaves out refuse every file.

    Attributes:
        report: of one run file.
        timeline: what `trace-export` draws, from the header on.
        sample: what became of one sample, PARTITION:INDEX, of a queue.
        sessions: of all sessions of a directory together.
        compare: the run files of BASE with those of NEW.
        comparison: what every format shows of that.
        runs: a list of runs; whether long files are read whole, too.
        live: a session to be followed, from its header on.
    """

    report: Callable[[Path], Report]
    timeline: Callable[[RunHeader], Timeline]
    sample: Callable[[Path, str], Report] = _not_offered
    sessions: Callable[[Path], Report] = _no_sessions
    compare: Callable[[Sequence[Path], Sequence[Path], CompareOptions], Comparison] = _not_offered
    comparison: Callable[[Comparison], Report] = _not_offered
    runs: Callable[[Found, bool], Report] = _not_offered
    live: Callable[[RunHeader], Live] = _not_offered

    @property
    def has_screen(self) -> bool:
        """Whether `watch` can show its sessions."""
        return self.live is not _not_offered

    @property
    def has_list(self) -> bool:
        """Whether its runs can be listed."""
        return self.runs is not _not_offered
