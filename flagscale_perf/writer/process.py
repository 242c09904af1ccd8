"""The writer process: a fresh interpreter of its own process session that drains one ring."""

from __future__ import annotations

import os

from flagscale_perf.spine import companion
from flagscale_perf.spine.ring import Ring
from flagscale_perf.writer.drain import Drain
from flagscale_perf.writer.instrument import MakeInstrument
from flagscale_perf.writer.outlet import Outlet
from flagscale_perf.writer.task import Parent, decode


def serve(make_instrument: MakeInstrument) -> None:
    """Reads its task from stdin and drains the ring until its producer has closed it or is gone."""
    companion.settle()
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        task, ring_fd = decode(stdin.readline())

    def is_orphan() -> bool:
        """Whether the measured process is gone."""
        return os.getppid() != task.pid

    ring = Ring.attach(ring_fd)
    companion.end_after_parent(is_orphan, lambda: ring.saved)
    outlet, alarm = Outlet(1), companion.Alarm(0)
    instrument = make_instrument(task, Parent(task.pid, lambda: not is_orphan(), alarm.watch))

    def wait(seconds: float) -> None:
        """Waits for the next cycle; lines that are due are sent first."""
        outlet.push()
        alarm.wait(seconds)

    Drain(ring, task, instrument, outlet.send).run(wait, is_orphan)
    outlet.finish()
