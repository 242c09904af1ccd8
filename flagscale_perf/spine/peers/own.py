"""The end of a process that measures: a ring that is handed to the process that drains those of its node.

If there is none, the ring fills up and that is all.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, TypeVar

from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.peers.handover import Visit
from flagscale_perf.spine.ring import Producer, Ring

SLOTS = 4096  # 1 MiB: the steps of minutes
# Between two tries to hand the ring over: a fifth of the time waited so far.
PAUSE_S, MAX_PAUSE_S, GROWTH = 0.02, 5.0, 1.2
MAX_LAST_PAUSE_S = 0.25  # the same at the end
LAST_TRIES = 40  # where it is not handed over before the end


OwnT = TypeVar("OwnT", bound="OwnRing")


class OwnRing(Producer):
    """The ring of this process."""

    def __init__(self, ring: Ring | None) -> None:
        """Use `begin`; without a ring nothing is kept."""
        super().__init__(ring)
        self._has_ended = threading.Event()

    @classmethod
    def begin(cls: type[OwnT], key: str, owner: Any) -> OwnT:
        """Makes a ring, which a thread hands to the process that drains those of `key`, and to its successor
        should it be killed. `owner`: JSON-ready, see `PeerKind`.

        Raises OSError without shared memory, RuntimeError without a thread.
        """
        ring = Ring.create(SLOTS)
        ring.producer = dump(owner)
        own = cls(ring)
        if ring.fd is not None:
            threading.Thread(
                target=_keep_given,
                args=(Visit(key, ring), own._has_ended),
                name="flagscale_perf ring",
                daemon=True,
            ).start()
        return own

    def end(self, reason: str) -> None:
        """No more records follow. What is stored is still handed over."""
        if self._close(reason) is not None:
            self._has_ended.set()


def _keep_given(visit: Visit, has_ended: threading.Event) -> None:
    """Keeps the ring given until its drain has finished."""
    pause_s, last_tries = PAUSE_S, LAST_TRIES
    while last_tries:
        with contextlib.suppress(OSError):  # no descriptor is left, or too many wait: the next try is later
            if visit.meet():
                pause_s = PAUSE_S
                if _is_drained(visit):
                    break
        if has_ended.is_set():  # a writer may have begun, and not yet run
            last_tries -= 1
            pause_s = min(pause_s, MAX_LAST_PAUSE_S)
            time.sleep(pause_s)
        has_ended.wait(pause_s)
        pause_s = min(pause_s * GROWTH, MAX_PAUSE_S)
    has_ended.wait()
    visit.ring.release()


def _is_drained(visit: Visit) -> bool:
    """Answers the questions of the drain until it is gone; whether it needs the ring no more."""
    for line in visit.lines():
        if not (question := line.decode(errors="replace").strip()):
            return True
        visit.ring.reply(question)
    return False
