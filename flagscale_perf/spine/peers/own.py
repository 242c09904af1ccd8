"""This process's end: a ring that other processes of the node find by its name.

No file, no socket. If no process drains it, the ring fills up and that is all.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from subprocess import DEVNULL
from typing import Any

from flagscale_perf.spine import companion
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.peers.member import Member
from flagscale_perf.spine.producer import Producer
from flagscale_perf.spine.ring import Ring

COLLECTOR = "flagscale_perf.spine.peers.collector"
SLOTS = 4096  # 1 MiB: the steps of minutes


class OwnRing(Producer):
    """The ring of this process."""

    def end(self, reason: str) -> None:
        """No more records follow. What is stored can be found until the process ends or makes a new ring."""
        if ring := self._close(reason):
            _ended.append(ring)


_ended: list[Ring] = []


def new_ring(member: Member, owner: Any) -> Ring:
    """A ring that can be found; `owner` is JSON-ready, see `PeerKind`. OSError without shared memory."""
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
    """On this process's stderr: the gathering process has no way to know."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # a closed stderr must not end the host
            line = f"flagscale_perf: no collector process: {type(error).__name__}: {error}"
            print(f"{line}; nothing is recorded of this node's {noun}s", file=sys.stderr, flush=True)
