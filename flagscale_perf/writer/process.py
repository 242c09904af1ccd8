"""The writer process: a fresh interpreter of its own process session that drains one ring, or those of all
processes of a job.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace

from flagscale_perf.spine import companion
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.peers.handover import Door, Source
from flagscale_perf.spine.peers.rings import AnyRing, Rings
from flagscale_perf.spine.ring import Ring
from flagscale_perf.writer.drain import RETRY_S, Drain
from flagscale_perf.writer.instrument import MakeInstrument
from flagscale_perf.writer.messages import Asked, Line, Message, Outlet
from flagscale_perf.writer.task import Parent, decode

VAIN_NS = 30 * NS_PER_S  # without anybody: whoever started this one is gone
GATHER_S = 0.2  # for the others of a writer that died: their rings say which session to go on with


def serve(make_instrument: MakeInstrument) -> None:
    """Reads its task from the descriptor that its command line names, and drains the ring until its producer
    has closed it or is gone.
    """
    companion.settle()
    with open(int(sys.argv[1]), "rb") as file:
        task, ring_fd = decode(file.readline())

    def is_orphan() -> bool:
        return os.getppid() != task.pid

    ring = Ring.attach(ring_fd)
    outlet, alarm = Outlet(1), companion.Alarm(0)
    parent = Parent(task.pid, alarm.watch, lambda asked: outlet.send(Asked(asked)), ring.answer_to)
    instrument = make_instrument(task, parent)

    def wait(seconds: float) -> None:
        outlet.push()
        alarm.wait(seconds)

    drain = Drain(ring, task, instrument, outlet.send, companion.give_way)
    companion.end_after_parent(is_orphan, lambda: ring.saved, _unsaved(ring, drain))
    drain.run(wait, is_orphan)
    outlet.finish()


def _unsaved(ring: AnyRing, drain: Drain) -> companion.Unsaved:
    return companion.Unsaved(lambda: not ring.is_empty, drain.rescue)


class Consoles:
    """The ways back to the processes of a job."""

    def __init__(self) -> None:
        self._outlets: dict[int, tuple[Source, Outlet]] = {}  # by descriptor
        self._leaving: list[int] = []

    def send(self, message: Message) -> None:
        """A line goes to the process that it is for, anything else to whoever is there."""
        pid = message.pid if isinstance(message, Line) else 0
        for source, outlet in self._outlets.values():
            if pid in (0, source.pid):
                outlet.send(message)
                return

    def come(self, source: Source) -> None:
        """Opens the way back to this process."""
        self._outlets[source.connection] = (source, Outlet(source.connection))

    def leave(self, source: Source) -> None:
        """No more records come from it; its last lines are still to be sent."""
        self._leaving.append(source.connection)

    def push(self) -> None:
        """Sends what is due, and tells processes that have left that nothing follows."""
        leaving, self._leaving = self._leaving, []
        for fd in leaving:
            self._outlets.pop(fd)[1].finish()
            os.close(fd)
        for _, outlet in self._outlets.values():
            outlet.push()


def serve_job(make_instrument: MakeInstrument) -> None:
    """Reads its task from the command line, and drains the rings that processes hand over until all of them
    have been gone for a while. No process ends it by its own end.
    """
    companion.settle()
    task, door_fd = decode(sys.argv[1].encode())
    consoles = Consoles()
    rings = Rings(Door.inherit(door_fd), consoles.come, consoles.leave)
    begun_ns = monotonic_ns()
    while not rings.receive():
        if monotonic_ns() - begun_ns > VAIN_NS:
            return
        time.sleep(RETRY_S)
    time.sleep(GATHER_S)
    rings.receive()

    def wait(seconds: float) -> None:
        consoles.push()
        time.sleep(seconds)

    instrument = make_instrument(replace(task, pid=os.getpid()), None)
    drain = Drain(rings, replace(task, pid=os.getpid()), instrument, consoles.send, companion.give_way)
    companion.end_after_parent(lambda: rings.is_deserted, lambda: rings.moves, _unsaved(rings, drain))
    drain.run(wait, lambda: False)
    consoles.push()
