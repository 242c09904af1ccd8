"""The reading thread: what is said, and a driver that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from flagscale_perf.device import sampler as sampler_module
from flagscale_perf.device.counters import NoCountersError
from flagscale_perf.device.sampler import Sampler
from flagscale_perf.training.records import HardwareRecord
from tests.fakes import make_reading
from tests.processes.trainer import wait_for


class Scripted:
    """Gives one reading after the other as the test lets it."""

    name = "scripted"
    readings: list[HardwareRecord]
    may_go_on: threading.Semaphore
    error: Exception | None

    @classmethod
    def open(cls, device_uuid: str) -> Scripted:
        if device_uuid != "mine":
            raise NoCountersError(f"does not know {device_uuid}")
        return cls()

    def read(self) -> HardwareRecord:
        self.may_go_on.acquire()
        if self.error is not None:
            raise self.error
        return self.readings.pop(0) if self.readings else HardwareRecord(0)


@pytest.fixture(autouse=True)
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Scripted]]:
    monkeypatch.setattr(sampler_module, "NvmlReader", Scripted)
    Scripted.readings = [make_reading(n) for n in range(3)]
    Scripted.may_go_on, Scripted.error = threading.Semaphore(0), None
    yield Scripted
    Scripted.may_go_on.release(1000)


@pytest.fixture
def start() -> Iterator:
    started: list[Sampler] = []

    def run(device_uuid: str = "mine") -> Sampler:
        started.append(Sampler(device_uuid, period_s=0.0))
        started[-1].start()
        return started[-1]

    yield run
    for sampler in started:
        sampler.stop()
    Scripted.may_go_on.release(1000)


def taken(sampler: Sampler, count: int) -> list[HardwareRecord]:
    readings: list[HardwareRecord] = []
    wait_for("readings", lambda: readings.extend(sampler.take()[0]) or len(readings) >= count)
    return readings


def said(sampler: Sampler) -> list[str]:
    return wait_for("a note", lambda: sampler.take()[1])


def test_readings_come_in_order_each_once(start) -> None:
    sampler = start()
    assert sampler.take() == ([], [])
    Scripted.may_go_on.release(3)
    assert taken(sampler, 3) == [make_reading(n) for n in range(3)]
    assert sampler.take() == ([], [])


def test_a_device_that_is_not_known_is_said_once_with_the_reason(start) -> None:
    sampler = start("yours")
    assert said(sampler) == ["no hardware counters: scripted: does not know yours"]
    assert sampler.take() == ([], [])


def test_a_driver_that_hangs_is_said_once_and_heard_when_it_comes_back(start) -> None:
    sampler = start()
    note = "no hardware counters: the driver has not answered for 0 s"
    assert wait_for("the hang", lambda: sampler.take(patience_s=0)[1]) == [note]
    assert sampler.take(patience_s=0) == ([], [])
    Scripted.may_go_on.release(3)
    assert len(taken(sampler, 3)) == 3


def test_a_device_that_tells_nothing_any_more_is_said_once(start) -> None:
    Scripted.readings = [HardwareRecord(1, xid=0, throttle=""), HardwareRecord(2), make_reading(3)]
    sampler = start()
    Scripted.may_go_on.release(3)
    notes: list[str] = []
    readings: list[HardwareRecord] = []

    def take() -> bool:
        new, remarks = sampler.take()
        readings.extend(new)
        notes.extend(remarks)
        return bool(readings)

    wait_for("the last reading", take)
    assert (readings, notes) == (
        [make_reading(3)],
        ["no hardware counters: scripted does not answer for this device"],
    )


def test_a_surprise_ends_the_reading_and_nothing_else(start) -> None:
    Scripted.error = OSError("bad library")
    sampler = start()
    Scripted.may_go_on.release()
    assert said(sampler) == ["no hardware counters: OSError: bad library"]
