"""Readings of the device on their way through the drain, and what it says about them."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.recording.pipeline import Sources
from flagscale_perf.training.records import IntervalRecord
from flagscale_perf.writer.drain import Drain
from tests.fakes import MS, SECOND, make_reading, make_step
from tests.unit.writer.test_drain import die, drain_of, finish, make_drain, put, records_in, ring, said

__all__ = ["ring", "said"]  # fixtures


class Device:
    """Gives the readings and remarks that the test lays down, each once."""

    def __init__(self) -> None:
        self.readings: list = []
        self.notes: list[str] = []

    def take(self):
        given = self.readings, self.notes
        self.readings, self.notes = [], []
        return given


def with_device(ring: Ring, directory: Path, said: list[str], device: Device) -> Drain:
    return drain_of(ring, make_drain(ring, directory, said)._task, said, Sources(device.take))


def test_readings_are_kept_and_explain_the_interval_they_were_made_in(
    ring: Ring, tmp_path: Path, said: list[str]
) -> None:
    device = Device()
    drain = with_device(ring, tmp_path, said, device)
    put(ring, *range(1, 11))
    device.readings, device.notes = [make_reading(n * 500 * MS) for n in range(3)], ["a remark"]
    drain.cycle()
    finish(ring, drain)
    records = records_in(tmp_path)
    assert [
        record for record in records if record in [make_reading(n * 500 * MS) for n in range(3)]
    ] == records[1:4]
    (interval,) = [record for record in records if isinstance(record, IntervalRecord)]
    # 10 steps from 0.1 to 1.1 s: read at 0.5 and 1.0 s, the energy from 0 s on
    assert (interval.energy_mj, interval.energy_ns, interval.power_mw) == (640_000, SECOND, 650_000)
    assert [(event.name, event.text) for event in records if isinstance(event, EventRecord)][0] == (
        "hardware",
        "a remark",
    )
    assert said == []


def test_the_next_drain_gives_an_interval_the_readings_of_the_one_before(
    ring: Ring, tmp_path: Path, said: list[str]
) -> None:
    device = Device()
    first = with_device(ring, tmp_path, said, device)
    put(ring, 1, 2, 3)
    device.readings = [make_reading(0), make_reading(400 * MS, xid=79)]
    first.cycle()
    die(first)
    put(ring, *range(4, 11))
    second = drain_of(ring, first._task, said)
    finish(ring, second)
    records = records_in(tmp_path)
    (interval,) = [record for record in records if isinstance(record, IntervalRecord)]
    assert (interval.energy_mj, interval.energy_ns) == (256_000, 400 * MS)
    texts = [
        record.text for record in records if isinstance(record, EventRecord) and record.name == "hardware"
    ]
    assert texts == ["rank 0's device: the driver reports XID 79"], "said once"


def test_a_slow_interval_with_capped_clocks_is_told_behind_it(
    ring: Ring, tmp_path: Path, said: list[str]
) -> None:
    device = Device()
    drain = with_device(ring, tmp_path, said, device)
    put(ring, *range(1, 41))
    ring.put(make_step(41, start_ns=4100 * MS, iteration_ns=300 * MS))
    for iteration in range(42, 51):
        ring.put(make_step(iteration, start_ns=(100 * iteration + 200) * MS))
    device.readings = [make_reading(n * SECOND) for n in range(1, 5)]
    device.readings.append(make_reading(5 * SECOND, throttle="power", sm_clock_mhz=1200))
    finish(ring, drain)
    events = [record for record in records_in(tmp_path) if isinstance(record, IntervalRecord | EventRecord)]
    assert isinstance(events[-2], IntervalRecord)
    assert (events[-1].name, events[-1].iteration) == ("slow", 50)
    # one step of ten took three times as long
    assert events[-1].text == "steps 41 to 50 took 20 % longer; observed: rank 0's clock capped by power"
