"""All sessions of one directory put one after the other: where the time of the whole experiment went."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flagscale_perf.analysis.blocks import Cell, Pairs, Quantity, Report, Section
from flagscale_perf.analysis.run_file import RunFile, sessions_in
from flagscale_perf.analysis.session import Course
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.session import file_names
from flagscale_perf.training.analysis.blocks import goodput
from flagscale_perf.training.analysis.fold import goodput_bar
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.goodput import Goodput, SessionGoodput
from flagscale_perf.training.records import StepRecord


@dataclass(frozen=True)
class Session:
    """One of them.

    Attributes:
        session_id: of the file.
        first_iteration, last_iteration: in it; None if none was finished.
        end_reason: as in `RunEnd`, "running" or "killed".
        redone: iterations that a later session did again.
        gap_ns: idle time since the end of the session before; 0 for the first.
        goodput: of this session alone, without the gap.
    """

    session_id: str
    first_iteration: int | None
    last_iteration: int | None
    end_reason: str
    redone: int
    gap_ns: int
    goodput: Goodput


@dataclass(frozen=True)
class History:
    """The sessions of a directory.

    Attributes:
        directory: theirs.
        sessions: oldest first.
        goodput: of all of them, gaps included.
        unreadable: why files have been left out, one line each.
    """

    directory: Path
    sessions: list[Session]
    goodput: Goodput
    unreadable: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        return asdict(self) | {"directory": str(self.directory)}


def report_of(history: History) -> Report:
    """The sessions, and where the time of all of them went."""
    count = len(history.sessions)
    left_out = [Pairs([("", reason) for reason in history.unreadable])] if history.unreadable else []
    return Report(
        title=f"{count} session{'s' * (count != 1)} in {history.directory}, as restarts of one experiment",
        facts=[Pairs([(one.session_id, _session(one)) for one in history.sessions])],
        sections=[
            Section("goodput", "Goodput", "Goodput", goodput(goodput_bar(history.goodput))),
            Section("unreadable", "", "Left out", left_out),
        ],
        content=history,
    )


def _session(session: Session) -> Cell:
    is_empty = session.last_iteration is None
    done = "no iteration" if is_empty else f"iterations {session.first_iteration} to {session.last_iteration}"
    again = f", {session.redone} of them done again later" if session.redone else ""
    text = f"{done}, {session.end_reason}{again}"
    return (Quantity(session.gap_ns / NS_PER_S, "s"), " later, ", text) if session.gap_ns else text


def stitch(directory: Path) -> History:
    """Reads every session of the directory as restarts of one experiment. Raises PerfError if there is none
    that can be read.

    A session goes on after its resume point, so whatever an earlier one did behind that point was done in
    vain.
    """
    runs, unreadable = _runs_in(directory)
    sessions: list[Session] = []
    total = Goodput()
    end_wall_ns: int | None = None
    for number, run in enumerate(runs):
        folded = SessionGoodput(run.header, _kept_until(runs[number + 1 :]), end_wall_ns)
        iterations, reason = _fold(run, folded)
        gap_ns = 0 if end_wall_ns is None else max(0, folded.start_wall_ns - end_wall_ns)
        goodput = folded.result()
        sessions.append(Session(run.header.session_id, *iterations, reason, folded.redone, gap_ns, goodput))
        total = total + goodput.with_gap(gap_ns)
        end_wall_ns = max(folded.end_wall_ns, end_wall_ns or folded.end_wall_ns)
    return History(directory, sessions, total, unreadable)


def _runs_in(directory: Path) -> tuple[list[RunFile], list[str]]:
    runs, unreadable = [], []
    for session_id in sessions_in(directory):
        try:
            runs.append(RunFile(directory / file_names(session_id)["records"]))
        except PerfError as error:
            unreadable.append(str(error))
    if not runs:
        raise PerfError(unreadable[0])
    return sorted(runs, key=lambda run: run.header.start_wall_ns), unreadable


def _kept_until(later: list[RunFile]) -> int | None:
    resumed = [RunFacts.of(run.header.facts).resume_iteration for run in later]
    return min(resumed, default=None)


def _fold(run: RunFile, folded: SessionGoodput) -> tuple[tuple[int | None, int | None], str]:
    first: int | None = None
    last: int | None = None
    course = Course()
    for record in run:
        folded.add(record)
        course.add(record)
        if isinstance(record, StepRecord):
            first = record.iteration - record.iterations + 1 if first is None else first
            last = record.iteration
    return (first, last), course.state(run.is_live())
