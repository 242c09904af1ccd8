"""Reads the device's counters once a second, on a thread of its own: a driver may hang."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import astuple
from typing import TypeVar

from flagscale_perf.device.counters import HardwareRecord, NoCountersError
from flagscale_perf.device.nvml import NvmlReader
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns

PERIOD_S = 1.0
PATIENCE_S = 5.0
MAX_WAITING = 4096

Item = TypeVar("Item")


class Sampler:
    """Reads one device until the process ends. For the writer process, never for the training's."""

    def __init__(self, device_uuid: str, period_s: float = PERIOD_S) -> None:
        """`device_uuid`: as in `RunFacts`; `period_s`: seconds between two readings."""
        self._device_uuid = device_uuid
        self._period_s = period_s
        self._readings: deque[HardwareRecord] = deque(maxlen=MAX_WAITING)
        self._notes: deque[str] = deque()
        self._busy_since_ns: int | None = None
        self._has_hung = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flagscale_perf hardware", daemon=True)

    def start(self) -> None:
        """Starts the thread that reads the counters."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after its present reading; does not wait for that."""
        self._ending.set()

    def take(self, patience_s: float = PATIENCE_S) -> tuple[list[HardwareRecord], list[str]]:
        """The readings since the last call, and new messages; each problem is reported once, including a
        driver that has not answered for `patience_s` seconds.
        """
        since_ns = self._busy_since_ns
        if since_ns is not None and not self._has_hung and monotonic_ns() - since_ns >= patience_s * NS_PER_S:
            self._has_hung = True
            self._notes.append(f"no hardware counters: the driver has not answered for {patience_s:g} s")
        return _emptied(self._readings), _emptied(self._notes)

    def _run(self) -> None:
        try:
            self._busy_since_ns = monotonic_ns()
            reader = self._open()
            has_gone = False
            while reader is not None and not self._ending.is_set():
                self._busy_since_ns = monotonic_ns()
                reading = reader.read()
                if _knows_anything(reading):
                    self._readings.append(reading)
                elif not has_gone:
                    has_gone = True
                    self._notes.append(f"no hardware counters: {reader.name} does not answer for this device")
                self._busy_since_ns = None
                self._ending.wait(self._period_s)
        except Exception as error:  # the driver's library may raise anything; the recording goes on
            self._notes.append(f"no hardware counters: {type(error).__name__}: {error}")
        finally:
            self._busy_since_ns = None

    def _open(self) -> NvmlReader | None:
        try:
            return NvmlReader.open(self._device_uuid)
        except NoCountersError as error:
            self._notes.append(f"no hardware counters: {NvmlReader.name}: {error}")
            return None


def _knows_anything(reading: HardwareRecord) -> bool:
    return any(value not in (None, 0, "") for value in astuple(reading)[1:])


def _emptied(items: deque[Item]) -> list[Item]:
    return [items.popleft() for _ in range(len(items))]
