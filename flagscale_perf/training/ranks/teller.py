"""The training side of a rank other than 0: it stores what it measures, and somebody finds it.

No file, no socket: a ring in shared memory, found by its name through /proc by another process of the node.
If nobody comes, the ring fills up and that is all. On a node without rank 0 the first rank starts the process
that comes, and waits for its end, on a thread of its own that does nothing else.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from subprocess import DEVNULL

from flagscale_perf.spine import companion
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.ranks.identity import signed
from flagscale_perf.training.ranks.place import Place
from flagscale_perf.training.records import MarksRecord, StepRecord

COLLECTOR = "flagscale_perf.training.ranks.collect"
SLOTS = 4096  # 1 MiB: the steps of minutes


class Teller:
    """One rank's; its methods are called on the training thread only, and neither wait nor raise."""

    def __init__(self, ring: Ring) -> None:
        """Use `start`."""
        self._ring: Ring | None = ring
        _live.add(self)

    @classmethod
    def start(cls, place: Place, identity: RankIdentity, directory: str) -> Teller:
        """Begins to tell; `directory` of the monitor's files.

        Raises OSError where there is no shared memory.
        """
        while _ended:
            _ended.pop().release()
        ring = Ring.create(SLOTS, place.ring_name)
        ring.producer = signed(identity)
        if place.local_rank == 0:
            _start_collector(place, directory)
        return cls(ring)

    def step(self, record: StepRecord | MarksRecord) -> None:
        """Keeps the record; counts a drop if there is no room."""
        if self._ring is not None:
            self._ring.put(record)

    def event(self, name: str, iteration: int, text: str) -> None:
        """Keeps an `EventRecord`."""
        if self._ring is not None:
            self._ring.put(EventRecord(name, monotonic_ns(), iteration, text))

    def end(self, reason: str) -> None:
        """Training has ended. What has been stored can be found until the process ends, or trains again."""
        if self._ring is not None:
            self._ring.close(reason, monotonic_ns())
            _ended.append(self._ring)
            self._ring = None

    def _abandon(self) -> None:
        """In a forked child: the ring stays the parent's."""
        self._ring = None


_live: weakref.WeakSet[Teller] = weakref.WeakSet()
_ended: list[Ring] = []


def _abandon_all() -> None:
    for teller in list(_live):
        teller._abandon()


os.register_at_fork(after_in_child=_abandon_all)


def _start_collector(place: Place, directory: str) -> None:
    """It ends by itself soon after this process. Started on another thread, as a slow disk may take its time
    over a new process.
    """
    task = place._asdict() | {
        "parent_pid": os.getpid(),
        "since_ns": monotonic_ns(),
        "directory": str(Path(directory).absolute()),
    }
    try:
        threading.Thread(
            target=_collector, args=(dump(task),), name="flagscale_perf collector", daemon=True
        ).start()
    except RuntimeError as error:
        _complain(error)


def _collector(task: str) -> None:
    """From its start to its end."""
    try:
        companion.start(COLLECTOR, task, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL).wait()
    except (OSError, subprocess.SubprocessError) as error:
        _complain(error)


def _complain(error: Exception) -> None:
    """Here, as rank 0 cannot know of it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # a closed stderr is no reason to end a training
            line = f"flagscale_perf: no collector process: {type(error).__name__}: {error}; nothing is recorded of this node's ranks"
            print(line, file=sys.stderr, flush=True)
