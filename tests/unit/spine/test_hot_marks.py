"""Marks and stamps of the extension: as in plain Python, and an exception, never a crash, for
whatever they are given.
"""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.hosts.timers import phase_timer
from flagscale_perf.spine import hot
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.slots import SLOT_BYTES
from tests.unit.spine.test_hot import DROP, Endless, NoIndex, OddIndex

_hot: Any = pytest.importorskip("flagscale_perf.spine._hot", reason="the extension is not built")


# --- marks


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60))
def test_marks_are_given_back_as_those_of_plain_python(values: list[int]) -> None:
    taken = []
    for marks in (_hot.Marks(60), hot.Marks(60)):
        for value in [5, *values]:
            marks.add(value)
            if value == 5:
                marks.clear()
        taken.append((marks.take(), marks.take()))
    assert taken[0] == taken[1]


def test_marks_beyond_the_room_are_as_many_as_the_room() -> None:
    for marks in (_hot.Marks(3), hot.Marks(3)):
        for value in range(5):
            marks.add(value)
        assert len(marks.take()) == 3


@pytest.mark.parametrize("mark", [None, "1", 1.5, 2**63, -(2**63) - 1, NoIndex(), OddIndex()])
def test_what_is_no_mark_is_an_exception(mark: Any) -> None:
    marks = _hot.Marks(3)
    with pytest.raises((TypeError, OverflowError, ValueError)):
        marks.add(mark)
    assert marks.take() == ()


@pytest.mark.parametrize(
    ("room", "error"), [(0, ValueError), (-1, ValueError), (2**62, MemoryError), (None, TypeError)]
)
def test_marks_without_room_are_exceptions(room: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        _hot.Marks(room)


# --- stamps


class Taker:
    """What a stamp gives its marks to."""

    def __init__(self, mark: Any) -> None:
        self.mark, self.failed = mark, []

    def phase_failed(self, error: Exception) -> None:
        self.failed.append((repr(error), sys.exc_info()[1] is error))


def start_of_a_phase(taker: Any) -> Any:
    """By whichever way is chosen."""
    return phase_timer(taker, "forward-compute").start


def test_a_stamp_is_the_clock_between_two_readings_of_it() -> None:
    marks = _hot.Marks(9)
    code = 3 << 57
    start = _hot.Stamp(Taker(marks.add), code)
    readings = [monotonic_ns()]
    for _ in range(3):
        start(barrier=True)
        readings.append(monotonic_ns())
    taken = [mark - code for mark in marks.take()]
    assert sorted([*readings, *taken]) == [
        value for pair in zip(readings, taken, strict=False) for value in pair
    ] + [readings[-1]]


def raising(error: BaseException) -> Any:
    def mark(mark: int) -> None:
        raise error

    return mark


@pytest.mark.usefixtures("either_way")
def test_what_a_mark_raises_goes_to_the_taker_as_it_is_handled() -> None:
    for mark, error in (
        (raising(KeyError(1)), "KeyError(1)"),
        (5, "TypeError(\"'int' object is not callable\")"),
    ):
        taker = Taker(mark)
        start_of_a_phase(taker)()
        assert taker.failed == [(error, True)]
    assert sys.exc_info()[1] is None


@pytest.mark.usefixtures("either_way")
def test_what_ends_a_program_goes_through_a_stamp() -> None:
    taker = Taker(raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        start_of_a_phase(taker)()
    assert taker.failed == []


@pytest.mark.usefixtures("either_way")
def test_what_the_taker_raises_goes_through_a_stamp() -> None:
    taker: Any = Taker(raising(KeyError(1)))
    taker.phase_failed = raising(LookupError("the host's own"))
    with pytest.raises(LookupError, match="the host's own"):
        start_of_a_phase(taker)()


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("args", "named"),
    [((1, 2), {}), ((), {"level": 1}), ((1,), {"barrier": 1}), ((), {"barrier": 1, "level": 1})],
)
def test_a_stamp_takes_what_the_hosts_timer_takes(args: Any, named: Any) -> None:
    taker = Taker(raising(KeyError(1)))
    with pytest.raises(TypeError):
        start_of_a_phase(taker)(*args, **named)
    assert taker.failed == []


@pytest.mark.parametrize("arguments", [(), (1,), (1, None), (1, "2"), (1, 2**63), (1, 2, 3)])
def test_wrong_arguments_of_a_stamp_are_exceptions(arguments: Any) -> None:
    with pytest.raises((TypeError, OverflowError)):
        _hot.Stamp(*arguments)


def test_a_taker_without_marks_is_an_exception() -> None:
    with pytest.raises(AttributeError):
        _hot.Stamp(object(), 0)()


# --- memory


def test_a_stamp_goes_with_what_holds_it() -> None:
    taker: Any = Taker(None)
    taker.stamp, gone = _hot.Stamp(taker, 0), weakref.ref(taker)
    del taker
    gc.collect()
    assert gone() is None


def use_everything() -> None:
    packer = _hot.Packer(1, [("o", 8), ("w", 16), ("s", 8), ("t", 0)])
    slot = memoryview(bytearray(SLOT_BYTES))
    for record in (
        (1, 2**80, "a", [1, 2**50]),
        (None, None, "ä" * 9, ()),
        (2**64, 1, "", ()),
        (1, 2**130, "", ()),
        (1, 1, "", (NoIndex(),)),
        (1, 1, "", Endless()),
        (1, 1, NoIndex(), ()),
        7,
    ):
        try:
            packer(slot, 0, 1, record)
        except (*DROP, ValueError):
            pass
    marks = _hot.Marks(3)
    for mark in (marks.add, marks.add, raising(KeyError(1)), None, 7):
        _hot.Stamp(Taker(mark), 2**62)()
    marks.take()


def test_nothing_it_makes_is_left() -> None:
    for _ in range(20):
        use_everything()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(200):
        use_everything()
    gc.collect()
    assert sys.getallocatedblocks() - before < 100  # one lost object a use would be 200
