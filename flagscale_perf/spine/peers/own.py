"""This process's end: a ring that other processes of the node find by its name.

No file, no socket. If nobody comes, the ring fills up and that is all.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import weakref
from dataclasses import asdict, dataclass
from subprocess import DEVNULL
from typing import Any

from flagscale_perf.spine import companion
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.peers.member import Member
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.ring import Ring

COLLECTOR = "flagscale_perf.spine.peers.collector"
SLOTS = 4096  # 1 MiB: the steps of minutes


class OwnRing:
    """The ring of this process; its methods are called on one thread only, and neither wait nor raise."""

    def __init__(self, ring: Ring) -> None:
        """`ring`: a new one, see `new_ring`."""
        self._ring: Ring | None = ring
        _live.add(self)

    def put(self, record: Any) -> None:
        """Keeps the record; counts a drop if there is no room."""
        if self._ring is not None:
            self._ring.put(record)

    def event(self, name: str, iteration: int, text: str) -> None:
        """Keeps an `EventRecord`."""
        if self._ring is not None:
            self._ring.put(EventRecord(name, monotonic_ns(), iteration, text))

    def end(self, reason: str) -> None:
        """No more records follow. What is stored can be found until the process ends or makes a new ring."""
        if self._ring is not None:
            self._ring.close(reason, monotonic_ns())
            _ended.append(self._ring)
            self._ring = None

    def _abandon(self) -> None:
        """In a forked child: the ring stays the parent's."""
        self._ring = None


_live: weakref.WeakSet[OwnRing] = weakref.WeakSet()
_ended: list[Ring] = []


def _abandon_all() -> None:
    for own in list(_live):
        own._abandon()


os.register_at_fork(after_in_child=_abandon_all)


def new_ring(member: Member, owner: Any) -> Ring:
    """A ring that can be found; `owner` is JSON-ready, see `PeerKind`. Raises OSError without shared memory."""
    while _ended:
        _ended.pop().release()
    ring = Ring.create(SLOTS, member.ring_name)
    ring.producer = dump([os.getpid(), owner])
    return ring


def read_owner(text: str) -> tuple[int, Any]:
    """The pid and the owner that `new_ring` has put into its ring. Raises ValueError."""
    try:
        pid, owner = json.loads(text)
    except (TypeError, RecursionError):
        raise ValueError("not the owner of a ring") from None
    return pid, owner


@dataclass(frozen=True)
class CollectorTask:
    """What a collector process is to do.

    Attributes:
        kind: path of the processes' `PeerKind`.
        key: of the job.
        name: of the member that starts the collector; the node's file is called after it.
        expected: members on this node, this one included; None where unknown.
        directory: of the exchange, see `exchange.directory_of`.
    """

    kind: str
    key: str
    name: str
    expected: int | None
    directory: str


def start_collector(task: CollectorTask, noun: str) -> None:
    """Starts this node's collector and waits for its end on a thread of its own, as a slow disk may take its
    time over a new process. The collector ends by itself soon after this process.
    """
    words = dump(asdict(task) | {"parent_pid": os.getpid(), "since_ns": monotonic_ns()})
    try:
        threading.Thread(
            target=_run_collector, args=(words, noun), name="flagscale_perf collector", daemon=True
        ).start()
    except RuntimeError as error:
        _complain(error, noun)


def _run_collector(words: str, noun: str) -> None:
    try:
        companion.start(COLLECTOR, words, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL).wait()
    except (OSError, subprocess.SubprocessError) as error:
        _complain(error, noun)


def _complain(error: Exception, noun: str) -> None:
    """On this process's stderr: whoever gathers the job has no way to know."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # a closed stderr must not end the host
            line = f"flagscale_perf: no collector process: {type(error).__name__}: {error}"
            print(f"{line}; nothing is recorded of this node's {noun}s", file=sys.stderr, flush=True)
