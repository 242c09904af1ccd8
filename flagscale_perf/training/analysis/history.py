"""All sessions of one directory put one after the other: where the time of the whole experiment went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flagscale_perf.analysis.blocks import Cell, Pairs, Quantity, Report, Section
from flagscale_perf.analysis.listed import not_read
from flagscale_perf.analysis.listing import Listing
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.store.runs import Unread
from flagscale_perf.training.analysis.blocks import goodput
from flagscale_perf.training.analysis.fold import goodput_bar
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.goodput import Goodput, SessionGoodput
from flagscale_perf.training.ledger.fold import LedgerFold, late_share
from flagscale_perf.training.rank_records import CutsRecord
from flagscale_perf.training.records import StepRecord


@dataclass(frozen=True)
class Restart:
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
        unread: files that have been left out, and why.
    """

    directory: Path
    sessions: list[Restart]
    goodput: Goodput
    unread: list[Unread]

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        return asdict(self) | {"directory": str(self.directory)}


def report_of(history: History) -> Report:
    """The sessions, and where the time of all of them went."""
    count = len(history.sessions)
    return Report(
        title=f"{count} session{'s' * (count != 1)} in {history.directory}, as restarts of one experiment",
        facts=[Pairs([(one.session_id, _session(one)) for one in history.sessions])],
        sections=[
            Section("goodput", "Goodput", "Goodput", goodput(goodput_bar(history.goodput))),
            not_read(history.unread),
        ],
        content=history,
    )


def _session(session: Restart) -> Cell:
    is_empty = session.last_iteration is None
    done = "no iteration" if is_empty else f"iterations {session.first_iteration} to {session.last_iteration}"
    again = f", {session.redone} of them done again later" if session.redone else ""
    text = f"{done}, {session.end_reason}{again}"
    return (Quantity(session.gap_ns / NS_PER_S, "s"), " later, ", text) if session.gap_ns else text


def stitch(listing: Listing) -> History:
    """Sessions of a directory as restarts of one experiment. Raises PerfError if one cannot be read.

    A session goes on after its resume point, so whatever an earlier one did behind that point was done in
    vain.
    """
    runs = sorted(listing.sessions, key=lambda run: run.header.start_wall_ns)
    sessions: list[Restart] = []
    total = Goodput()
    end_wall_ns: int | None = None
    for number, run in enumerate(runs):
        kept = _kept_until(runs[number + 1 :])
        folded, ledgers = SessionGoodput(run.header, kept, end_wall_ns), LedgerFold()
        iterations = _fold(run, folded, ledgers, kept)
        gap_ns = 0 if end_wall_ns is None else max(0, folded.start_wall_ns - end_wall_ns)
        share, goodput = late_share(ledgers.result(since=0)), folded.result()
        goodput = goodput if share is None else goodput.with_late(share)
        sessions.append(
            Restart(run.header.session_id, *iterations, run.state, folded.redone, gap_ns, goodput)
        )
        total = total + goodput.with_gap(gap_ns)
        end_wall_ns = max(folded.end_wall_ns, end_wall_ns or folded.end_wall_ns)
    return History(listing.directory, sessions, total, listing.unread)


def _kept_until(later: Sequence[Session]) -> int | None:
    resumed = [RunFacts.of(run.header.facts).resume_iteration for run in later]
    return min(resumed, default=None)


def _fold(
    run: Session, folded: SessionGoodput, ledgers: LedgerFold, kept_until: int | None
) -> tuple[int | None, int | None]:
    first: int | None = None
    last: int | None = None
    for record in run:
        folded.add(record)
        if isinstance(record, StepRecord):
            first = record.iteration - record.iterations + 1 if first is None else first
            last = record.iteration
        elif isinstance(record, CutsRecord) and (kept_until is None or record.iteration <= kept_until):
            ledgers.add(record)
    return first, last
