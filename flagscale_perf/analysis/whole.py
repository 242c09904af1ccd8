"""The sessions of one job: a training or a service, and what else was recorded of it at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

from flagscale_perf.analysis.clocks import clock_of
from flagscale_perf.analysis.instrument import load
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.peers.records import ProcessRecord
from flagscale_perf.spine.units import duration

# Of each file: it is held against all that were written at the same time.
_known: WeakKeyDictionary[object, set[tuple[str, int]]] = WeakKeyDictionary()


class Stretch(NamedTuple):
    """From when to when a session lasted, in ns of Unix time."""

    begin_ns: int
    end_ns: int

    def meets(self, other: Stretch) -> bool:
        """Whether one lasted when the other began; of which nothing but the beginning was recorded, too."""
        return self.begin_ns <= other.end_ns and other.begin_ns <= self.end_ns

    def shared_ns(self, other: Stretch) -> int:
        """How long both lasted at the same time; 0 where they did not."""
        return max(min(self.end_ns, other.end_ns) - max(self.begin_ns, other.begin_ns), 0)


@dataclass(frozen=True)
class Member:
    """A session that was recorded beside the leading one.

    Attributes:
        evidence: why it is of the same job, in words.
        is_on_clock: its marks are on the clock of the leading session; else on another machine's.
    """

    session: Session
    stretch: Stretch
    evidence: str
    is_on_clock: bool


@dataclass(frozen=True)
class Whole:
    """A job.

    Attributes:
        lead: the session whose time all others are a part of.
        stretch: its own.
        members: the others, from old to new.
        apart: sessions of the same time that are not, or not surely, of this job, and why; one line each.
    """

    lead: Session
    stretch: Stretch
    members: Sequence[Member]
    apart: Sequence[str]

    @property
    def sessions(self) -> list[Session]:
        """The leading one first."""
        return [self.lead, *(each.session for each in self.members)]

    def of(self, instrument: str) -> list[Session]:
        """Those of an instrument."""
        return [one for one in self.sessions if one.instrument == instrument]


def whole_of(chosen: Session, near: Iterable[Session]) -> Whole:
    """The job of a session that was chosen, among those of its directory and right below it that overlap."""
    near = [one for one in near if not _is_same(one, chosen)]
    stretches = {id(one): stretch_of(one) for one in (chosen, *near)}
    own = stretches[id(chosen)]
    around = [one for one in near if own.meets(stretches[id(one)]) and _leads(one) > _leads(chosen) >= 0]
    first = sorted(around, key=lambda one: (_leads(one), stretches[id(one)].begin_ns), reverse=True)
    lead = next((one for one in first if not _stranger(chosen, one, _rivals(one, around))), chosen)
    whole = stretches[id(lead)]
    if _leads(lead) < 0:
        return Whole(lead, whole, [], [])
    beside = [one for one in (chosen, *near) if whole.meets(stretches[id(one)]) and one is not lead]
    return _joined(lead, beside, stretches)


def _joined(lead: Session, beside: Sequence[Session], stretches: Mapping[int, Stretch]) -> Whole:
    """The job with what overlaps with its leading session; `stretches` by the sessions' ids."""
    whole, members, apart = stretches[id(lead)], list[Member](), list[str]()
    rivals = _rivals(lead, beside)
    for one in sorted(beside, key=lambda each: stretches[id(each)]):
        if one.instrument == lead.instrument:
            continue
        name = f"{one.instrument} session {one.header.session_id}"
        if _leads(one) < 0:
            apart.append(f"{name} measures by itself")
        elif _leads(one) > _leads(lead):
            apart.append(
                f"{name} may be what this one is a part of: {_stranger(lead, one, _rivals(one, beside))}"
            )
        elif why := _stranger(one, lead, rivals):
            apart.append(f"{name} {why}")
        else:
            evidence = _evidence(one, lead, stretches[id(one)], whole)
            is_on_clock = clock_of(one.header) == clock_of(lead.header)
            members.append(Member(one, stretches[id(one)], evidence, is_on_clock))
    return Whole(lead, whole, members, apart)


def stretch_of(session: Session) -> Stretch:
    """From its first file's beginning to its last one's end; logs have none."""
    files = session.files
    if not files:
        return Stretch(0, 0)
    return Stretch(min(each.header.start_wall_ns for each in files), max(each.ended_ns for each in files))


def _is_same(one: Session, other: Session) -> bool:
    return any(file.path == other.path for file in one.files)


def _leads(session: Session) -> int:
    return load(session.instrument).leads


def _rivals(lead: Session, around: Iterable[Session]) -> list[Session]:
    """Other sessions of its instrument at the same time."""
    return [one for one in around if one.instrument == lead.instrument and one is not lead]


def _stranger(one: Session, lead: Session, rivals: Sequence[Session]) -> str:
    """Why it is not of the job of the leading session; empty where it is."""
    if _shares_process(one, lead):
        return ""
    if other := next((rival for rival in rivals if _shares_process(one, rival)), None):
        return f"is of the processes of {lead.instrument} session {other.header.session_id}"
    if rivals:
        return (
            f"overlaps with {len(rivals) + 1} {lead.instrument} sessions, and nothing says of which one it is"
        )
    return ""


def _evidence(one: Session, lead: Session, own: Stretch, whole: Stretch) -> str:
    shared_s, all_s = (ns / NS_PER_S for ns in (own.shared_ns(whole), own.end_ns - own.begin_ns))
    shared = f"{duration(shared_s)} of its {duration(all_s)} lie in it" if all_s else "began in it"
    if pid := _shares_process(one, lead):
        return f"recorded process {pid} of it; {shared}"
    below = one.path.parent != lead.path.parent
    where = f"in the directory {one.path.parent.name} beside it" if below else "in its directory"
    return f"{where}; {shared}"


def _shares_process(one: Session, other: Session) -> int | None:
    """A pid that both recorded, on one clock and so in one start of one machine."""
    shared = _processes(one) & _processes(other)
    return min((pid for _, pid in shared), default=None)


def _processes(session: Session) -> set[tuple[str, int]]:
    return set[tuple[str, int]]().union(*(_processes_in(Session([file])) for file in session.files))


def _processes_in(alone: Session) -> set[tuple[str, int]]:
    """Those of one file."""
    (file,) = alone.files
    if file not in _known:
        _known[file] = _read_processes(alone)
    return _known[file]


def _read_processes(alone: Session) -> set[tuple[str, int]]:
    clock, header = clock_of(alone.header), alone.header
    found = {(clock, header.pid)} if header.pid is not None else set()
    with suppress(PerfError, OSError):  # who reads the session says so
        found |= {(clock, each.pid) for each in alone.files[0].early(ProcessRecord)}
    return found
