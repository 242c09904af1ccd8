"""The interface of an instrument to the commands that read run files."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.clocks import Bound, Clocks
from flagscale_perf.analysis.compare.compare import CompareOptions, Comparison, Gate
from flagscale_perf.analysis.laid import Laid
from flagscale_perf.analysis.listing import Listing
from flagscale_perf.analysis.log_files import LogSigns
from flagscale_perf.analysis.replays import Replayable
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import Timeline
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import find_part, missing
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.store.kept import Kept
from flagscale_perf.store.tables import Tables

_PACKAGE, _FILE, _LOGS = Path(__file__).parents[1], "analysis/instrument.py", "analysis/logs.py"


class Live(Protocol):
    """One session as far as it has been read, in bounded memory."""

    def add(self, record: Any) -> None:
        """Takes the session's next record."""

    def report(self, has_writer: bool | None, now_wall_ns: int) -> Report:
        """The screen of `watch`; `has_writer`: whether a process still writes the file; None: not known."""

    def before(self) -> str:
        """One line about it when a newer session follows."""


def _not_offered(*_: Any) -> Any:
    raise PerfError(
        "the instrument that recorded this has nothing for this command or option; try `report` alone"
    )


def _nothing(_: Session) -> tuple[()]:
    return ()


@dataclass(frozen=True)
class Spans:
    """The words for an instrument's items as spans of OpenTelemetry.

    Attributes:
        prefix: of the names of its attributes; "" for the instrument's name.
        service: of a process without a title; "" for the same.
        names: of attributes that OpenTelemetry's conventions have names for.
        of_kind: attributes of each item of a kind.
    """

    prefix: str = ""
    service: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    of_kind: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Instrument:
    """Its analysis. Each function raises PerfError for what it cannot read; those that an instrument leaves
    out refuse every session.

    Attributes:
        report: of one session, or of logs where it reads any.
        timeline: what `trace-export` draws.
        patch: the settings that its findings advise, as its host takes them.
        sample: what became of one sample, PARTITION:INDEX, of a queue.
        sessions: of all sessions of a directory together; given oldest first, and why files cannot be read.
        compare: the sessions of BASE with those of NEW.
        trees: the same of two directories of them, by configuration, with the directories' names.
        runs: a list of sessions; long files are read whole only if its second argument says so.
        tables: its records as tables.
        steps: begin and end of each of the steps that a leading session has, monotonic marks in order.
        laid: what it recorded that lies in such steps: calls, operations.
        evidence: what messages between machines say of their clocks; of each machine's run file alone, with
            marks as recorded.
        replayable: a session, so that changes of it can be predicted.
        shares: of a profile, what changes of operators are predicted from, see `replays.Layout`.
        live: a session to be followed, from its header on.
        what: one of its sessions, in words; "" for its name.
        leads: of a job's sessions, the time of the one of the highest number holds that of all others; one
            below 0 is of no job.
        spans: how OpenTelemetry knows what it records.
    """

    report: Callable[[Session], Report]
    timeline: Callable[[Session], Timeline]
    sample: Callable[[Session, str], Report] = _not_offered
    patch: Callable[[Session], str] = _not_offered
    sessions: Callable[[Listing], Report] = _not_offered
    compare: Callable[[Sequence[Session], Sequence[Session], CompareOptions], Comparison] = _not_offered
    trees: Callable[
        [Sequence[Session], Sequence[Session], tuple[str, str], CompareOptions], tuple[Report, Gate | None]
    ] = _not_offered
    runs: Callable[[Listing, bool], Report] = _not_offered
    tables: Tables = field(default_factory=Tables)
    steps: Callable[[Session], Iterable[tuple[int, int]]] = _nothing
    laid: Callable[[Session], Iterable[Laid]] = _nothing
    evidence: Callable[[Sequence[Session]], Iterable[Bound]] = lambda _: ()
    replayable: Callable[[Session], Replayable] = _not_offered
    shares: Callable[[Session], Mapping[str, Mapping[int, float]]] = _not_offered
    live: Callable[[RunHeader], Live] = _not_offered
    what: str = ""
    leads: int = 0
    spans: Spans = field(default_factory=Spans)

    def offers(self, what: str) -> bool:
        """Whether it has this function of those that may be left out."""
        return getattr(self, what) is not _not_offered


@cache
def installed() -> list[str]:
    """Names of the instruments, one folder of the package each; a run file names the one that wrote it."""
    return sorted(path.parts[-3] for path in _PACKAGE.glob(f"*/{_FILE}"))


def clocks_of(sessions: Iterable[Session]) -> Clocks:
    """How the clocks of all machines of these sessions lie to one another, by what their instruments know."""
    alone = [Session([file]) for session in sessions for file in session.files]
    return Clocks([each.header for each in alone], lambda: _evidence_of(alone))


@dataclass
class Evidence:
    """Of long files it is kept, as it takes another reading of them."""

    bounds: list[Bound] = field(default_factory=list)


def _evidence_of(alone: Sequence[Session]) -> list[Bound]:
    found = Evidence()
    kept = Kept.of([path for each in alone for path in each.paths], [found])
    if kept is None or kept.restore() is None:
        for name in sorted({*installed()} & {each.instrument for each in alone}):
            found.bounds += load(name).evidence([each for each in alone if each.instrument == name])
        if kept is not None:
            kept.keep()
    return found.bounds


def signs_of_logs() -> dict[str, LogSigns]:
    """Of the instruments that read logs of other programs, by name; the instruments themselves are not
    imported, as that takes longer than to read a short log.
    """
    names = sorted(path.parts[-3] for path in _PACKAGE.glob(f"*/{_LOGS}"))
    modules = {name: importlib.import_module(f"flagscale_perf.{name}.analysis.logs") for name in names}
    return {name: module.SIGNS for name, module in modules.items()}


@cache
def load(name: str) -> Instrument:
    """The instrument of that name, its modules imported now. Raises PerfError for one that is not here, and
    where a package that it needs is not.
    """
    if name not in installed():
        known = ", ".join(installed())
        raise PerfError(
            f"the instrument {name!r} is not known; this version has {known}: update flagscale_perf"
        )
    try:
        module = importlib.import_module(f"flagscale_perf.{name}.analysis.instrument")
    except ImportError as error:
        if part := find_part(error.name):
            raise missing(part.module, error, f"a report of {name}") from None
        raise
    instrument: Instrument = module.INSTRUMENT
    return instrument
