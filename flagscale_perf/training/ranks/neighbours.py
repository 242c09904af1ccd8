"""Finds the rings of other processes of this node: their shared memory has a name, and /proc shows it to the
same user.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.marks import FileRecord, MarksJoin
from flagscale_perf.training.phases import PhaseJoin, StepPhases
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.ranks.identity import identity_of
from flagscale_perf.training.ranks.place import ring_prefix
from flagscale_perf.training.records import PhaseRecord, StepRecord

PAUSES_S = (
    0.5,
    0.5,
    1,
    1,
    2,
    4,
    8,
    16,
    32,
)  # between two looks; after the last one nobody is looked for any more


class ProcessStat(NamedTuple):
    """Of /proc/PID/stat.

    Attributes:
        parent: its pid.
        start_ticks: of the process's start; with the pid, no other process has it.
    """

    parent: int
    start_ticks: int


def process_stat(pid: int) -> ProcessStat | None:
    """None for a process that is gone, also where nobody has taken notice of its end yet. Raises OSError
    where that cannot be told.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *numbers = (
                file.read().rpartition(")")[2].split()
            )  # from the third field on; the second is in parentheses
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZXx" else ProcessStat(int(numbers[0]), int(numbers[18]))


class Told(NamedTuple):
    """What a ring held.

    Attributes:
        steps: each with its phases; None where they were not measured.
        notes: what the monitor in that process had to say.
    """

    steps: list[tuple[StepRecord, StepPhases | None]]
    notes: list[str]


class Neighbour:
    """A rank in another process, and its ring.

    Attributes:
        identity: whose it is.
        iteration: the last one it has told of.
    """

    def __init__(self, identity: RankIdentity, ring: Ring, start_ticks: int) -> None:
        self.identity = identity
        self.iteration = 0
        self._ring = ring
        self._start_ticks = start_ticks
        self._has_told_drops = False
        self._marks = MarksJoin()
        self._phases = PhaseJoin({})

    def drain(self) -> Told:
        """Everything in the ring; its slots are given back."""
        told = Told([], [])
        slots = self._ring.take(self._ring.slots)
        for slot in slots:
            for record in self._marks.take(slot):
                self._tell(record, told)
        self._ring.commit(len(slots))
        if self._ring.dropped and not self._has_told_drops:
            self._has_told_drops = True
            told.notes.append(
                f"{self._ring.dropped} of its records are lost, and perhaps more later: more came than was read"
            )
        return told

    def _tell(self, record: FileRecord, told: Told) -> None:
        if isinstance(record, PhaseRecord):
            self._phases.hold(record)
        elif isinstance(record, StepRecord):
            self.iteration = record.iteration
            told.steps.append((record, self._phases.take(record)))
        elif isinstance(record, EventRecord):
            told.notes.append(record.text)

    @property
    def has_ended(self) -> bool:
        """Its training has ended, and it said so."""
        return self._ring.end is not None

    def is_running(self) -> bool:
        """Whether its process is there, as far as can be told: where no file can be opened, nobody has died
        of that.
        """
        try:
            now = process_stat(self.identity.pid)
        except OSError:
            return True
        return now is not None and now.start_ticks == self._start_ticks

    def release(self) -> None:
        """Gives the mapping back."""
        self._ring.release()


class Search:
    """Looks for the rings of a job's other processes on this node, a few times and then no more.

    Attributes:
        found: by rank.
    """

    def __init__(self, key: str, beside: int, expected: int | None, since_ns: int) -> None:
        """`beside`: the process whose siblings are looked at first; `expected`: so many are enough, None for
        as many as there are.

        Rings that were closed before the monotonic mark `since_ns` are of an earlier training.
        """
        self.found: dict[int, Neighbour] = {}
        self._link = f"/memfd:{ring_prefix(key)}"
        self._beside = beside
        self._expected = expected
        self._since_ns = since_ns
        self._pauses = iter(PAUSES_S)
        self._next_ns: int | None = 0

    @property
    def is_over(self) -> bool:
        """Nobody is looked for any more."""
        return self._next_ns is None

    @property
    def missing(self) -> int:
        """How many of the expected ones have not been found."""
        return max(0, (self._expected or 0) - len(self.found))

    def look(self, now_ns: int) -> list[Neighbour]:
        """Those found now, if it is time to look."""
        if self._next_ns is None or now_ns < self._next_ns:
            return []
        new: list[Neighbour] = []
        for pid in self._candidates():
            if self._has_all():
                break
            new += self._rings_of(pid)
        pause_s = None if self._has_all() else next(self._pauses, None)
        self._next_ns = None if pause_s is None else now_ns + int(pause_s * NS_PER_S)
        return new

    def _has_all(self) -> bool:
        return self._expected is not None and len(self.found) >= self._expected

    def _candidates(self) -> list[int]:
        """Every process of this user: first the one beside us and its siblings. None where /proc cannot be
        read now.
        """
        try:
            own = process_stat(self._beside)
            parents = {pid: stat.parent for pid in _pids() if (stat := process_stat(pid)) is not None}
        except OSError:
            return []
        return sorted(
            parents, key=lambda pid: (pid != self._beside, own is None or parents[pid] != own.parent, pid)
        )

    def _rings_of(self, pid: int) -> Iterator[Neighbour]:
        directory = f"/proc/{pid}/fd"
        try:
            names = os.listdir(directory)
        except OSError:  # it has ended, or may not be looked into
            return
        for name in names:
            with contextlib.suppress(
                OSError, ValueError, struct.error
            ):  # it has gone meanwhile, or is no ring
                rank = self._rank_in(os.readlink(f"{directory}/{name}"))
                if rank is not None and rank not in self.found:
                    neighbour = _attached(f"{directory}/{name}", pid, self._since_ns)
                    if neighbour is not None:
                        self.found[rank] = neighbour
                        yield neighbour

    def _rank_in(self, link: str) -> int | None:
        """Whose ring it is by its name; None for anything else."""
        number = link.removeprefix(self._link).partition(" ")[0]
        return int(number) if link.startswith(self._link) and number.isdigit() else None


def _pids() -> list[int]:
    """Of this user's processes."""
    uid, pids = os.getuid(), []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                pids.append(int(name))
    return pids


def _attached(path: str, pid: int, since_ns: int) -> Neighbour | None:
    """The ring behind this descriptor if it is that process's own (forked children and readers hold it, too)
    and not an old one.

    Raises OSError, ValueError or struct.error.
    """
    stat = process_stat(pid)
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        ring = Ring.attach(fd)
    except BaseException:
        os.close(fd)
        raise
    identity = _owner(ring, pid, since_ns)
    if stat is None or identity is None:
        ring.release()
        return None
    return Neighbour(identity, ring, stat.start_ticks)


def _owner(ring: Ring, pid: int, since_ns: int) -> RankIdentity | None:
    end, producer = ring.end, ring.producer
    if producer is None or (end is not None and end.at_ns < since_ns):
        return None
    try:
        identity = identity_of(producer)
    except ValueError:
        return None
    return identity if identity.pid == pid else None
