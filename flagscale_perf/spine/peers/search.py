"""Finds the rings of a job's other processes on this node: their shared memory has a name, and /proc shows it
to processes of the same user.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from typing import Any, Generic

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.peers.kind import Owner, PeerKind
from flagscale_perf.spine.peers.member import is_name, ring_prefix
from flagscale_perf.spine.peers.own import read_owner
from flagscale_perf.spine.processes import own_pids, process_stat
from flagscale_perf.spine.ring import Ring

PAUSES_S = (0.5, 0.5, 1, 1, 2, 4, 8, 16, 32)  # between two looks; after the last one the search is over


class Peer(Generic[Owner]):
    """Another process of the job, and its ring.

    Attributes:
        name: among the job's members.
        pid: of the process.
        owner: what it says about itself.
    """

    def __init__(self, name: str, pid: int, start_ticks: int, owner: Owner, ring: Ring) -> None:
        """`start_ticks`: start of the process, as in `ProcessStat`."""
        self.name = name
        self.pid = pid
        self.owner = owner
        self._ring = ring
        self._start_ticks = start_ticks

    def drain(self) -> list[Any]:
        """Takes every record out of the ring."""
        records = self._ring.take(self._ring.slots)
        self._ring.commit(len(records))
        return list(records)

    @property
    def dropped(self) -> int:
        """Records lost so far because the ring was full."""
        return self._ring.dropped

    @property
    def has_ended(self) -> bool:
        """Whether it has closed its ring."""
        return self._ring.end is not None

    def is_running(self) -> bool:
        """Whether the process lives; also True while /proc cannot be read (no descriptors left)."""
        try:
            now = process_stat(self.pid)
        except (OSError, ValueError):
            return True
        return now is not None and now.start_ticks == self._start_ticks

    def release(self) -> None:
        """Gives the mapping back."""
        self._ring.release()


class Search(Generic[Owner]):
    """Looks for the rings of a job's other processes on this node, a few times and then no more.

    Attributes:
        found: names of the members found so far.
    """

    def __init__(
        self, kind: PeerKind[Owner, Any], key: str, beside: int, expected: int | None, since_ns: int
    ) -> None:
        """`key` of the job.

        `beside`: pid whose siblings are looked at first. `expected`: the search is over with so many, None to
        find as many as there are. Rings closed before the monotonic mark `since_ns` are of an earlier job.
        """
        self.found: set[str] = set()
        self._kind = kind
        self._link = f"/memfd:{ring_prefix(key)}"
        self._beside = beside
        self._expected = expected
        self._since_ns = since_ns
        self._pauses = iter(PAUSES_S)
        self._next_ns: int | None = 0

    @property
    def is_over(self) -> bool:
        """Whether the search has ended."""
        return self._next_ns is None

    @property
    def missing(self) -> int:
        """How many of the expected ones have not been found."""
        return max(0, (self._expected or 0) - len(self.found))

    def look(self, now_ns: int) -> list[Peer[Owner]]:
        """Those found now, if it is time to look."""
        if self._next_ns is None or now_ns < self._next_ns:
            return []
        new: list[Peer[Owner]] = []
        for pid in self._candidates():
            if self._has_all():
                break
            new += self._peers_in(pid)
        pause_s = None if self._has_all() else next(self._pauses, None)
        self._next_ns = None if pause_s is None else now_ns + int(pause_s * NS_PER_S)
        return new

    def _has_all(self) -> bool:
        return self._expected is not None and len(self.found) >= self._expected

    def _candidates(self) -> list[int]:
        """Every process of this user, `beside` and its siblings first; none if /proc cannot be read now."""
        try:
            own = process_stat(self._beside)
            parents = {pid: stat.parent for pid in own_pids() if (stat := process_stat(pid)) is not None}
        except (OSError, ValueError):
            return []
        return sorted(
            parents, key=lambda pid: (pid != self._beside, own is None or parents[pid] != own.parent, pid)
        )

    def _peers_in(self, pid: int) -> Iterator[Peer[Owner]]:
        directory = f"/proc/{pid}/fd"
        try:
            descriptors = os.listdir(directory)
        except OSError:  # the process has ended, or may not be looked into
            return
        for descriptor in descriptors:
            with contextlib.suppress(OSError, ValueError, struct.error):  # closed meanwhile, or no ring
                path = f"{directory}/{descriptor}"
                name = self._name_in(os.readlink(path))
                if name is not None and name not in self.found:
                    peer = self._attach(path, pid, name)
                    self.found.add(name)
                    yield peer

    def _name_in(self, link: str) -> str | None:
        """The member whose ring this is by its name; None for anything else."""
        name = link.removeprefix(self._link).partition(" ")[0]
        return name if link.startswith(self._link) and is_name(name) else None

    def _attach(self, path: str, pid: int, name: str) -> Peer[Owner]:
        """Raises OSError, ValueError or struct.error for what is not this member's ring in this process."""
        stat = process_stat(pid)
        if stat is None:
            raise ValueError(f"process {pid} is gone")
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            ring = Ring.attach(fd)
        except BaseException:  # whatever it is, the descriptor must not leak
            os.close(fd)
            raise
        try:
            return Peer(name, pid, stat.start_ticks, self._owner(ring, pid, name), ring)
        except BaseException:  # whatever it is, the mapping must not leak
            ring.release()
            raise

    def _owner(self, ring: Ring, pid: int, name: str) -> Owner:
        """Raises ValueError for a ring of an earlier job, and for one that the process only holds open, as
        forked children do and processes that drain it.
        """
        end, text = ring.end, ring.producer
        if text is None or (end is not None and end.at_ns < self._since_ns):
            raise ValueError("not a ring of this job")
        owner_pid, content = read_owner(text)
        owner = self._kind.decode_owner(content)
        if owner_pid != pid or self._kind.name_of(owner) != name:
            raise ValueError("another process's ring")
        return owner
