"""What the writer notices by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from flagscale_perf.spine import clock
from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.records import ClockRecord, EventRecord
from flagscale_perf.spine.ring import Ring
from flagscale_perf.writer.journal import Journal, Notices
from flagscale_perf.writer.messages import Message, Trouble
from flagscale_perf.writer.notify import Notifier
from tests.fakes import make_step

START = Anchor(1_706_524_200 * NS_PER_S, 0)


@pytest.fixture
def ring() -> Iterator[Ring]:
    made = Ring.create(slots=2)
    yield made
    made.release()


class Clocks:
    """Both clocks, set by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mono_ns, self.offset_ns = 0, 0
        monkeypatch.setattr(clock, "monotonic_ns", lambda: self.mono_ns)
        monkeypatch.setattr(time, "time_ns", lambda: START.wall_ns + self.mono_ns + self.offset_ns)


def test_both_clocks_are_recorded_every_minute_and_when_the_wall_clock_was_set(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks(monkeypatch)
    journal = Journal(pytest.fail, lambda: 7, with_tracebacks=False)
    notices = Notices(ring, START, journal, Notifier([], "", START))
    for second in (0, 30, 60, 90, 119, 120):
        clocks.mono_ns = second * NS_PER_S
        notices.look()
    clocks.offset_ns = -5 * NS_PER_S
    notices.look()
    notices.anchor()
    set_back = ClockRecord(START.wall_ns + 115 * NS_PER_S, 120 * NS_PER_S)
    records = journal.take()
    assert [record for record in records if isinstance(record, ClockRecord)] == [
        ClockRecord(START.wall_ns + 60 * NS_PER_S, 60 * NS_PER_S),
        ClockRecord(START.wall_ns + 120 * NS_PER_S, 120 * NS_PER_S),
        set_back,
        set_back,
    ]
    assert [
        (record.name, record.iteration, record.text) for record in records if isinstance(record, EventRecord)
    ] == [("clock", 7, "the wall clock was set by -5.0 s; times here go on as before")]


def test_lost_records_are_printed_once_and_recorded_as_they_double(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clocks(monkeypatch)
    sent: list[Message] = []
    journal = Journal(sent.append, lambda: 0, with_tracebacks=False)
    notices = Notices(ring, START, journal, Notifier([], "", START))
    counts = []
    for iteration in range(1, 10):  # two of them have room
        ring.put(make_step(iteration))
        notices.look()
        counts += [record.text.split()[0] for record in journal.take()]
    assert counts == ["1", "2", "4"]
    assert sent == [
        Trouble("flagscale_perf: 1 records lost so far: records came faster than the disk took them")
    ]
