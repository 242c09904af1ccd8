"""The extension beside plain Python: the same bytes in the ring, the same marks, and an exception, never a
crash, for whatever else it is given.
"""

from __future__ import annotations

import gc
import struct
import subprocess
import sys
import weakref
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf import __version__
from flagscale_perf.hosts.timers import phase_timer
from flagscale_perf.spine import hot
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.records import TYPES
from flagscale_perf.spine.ring import Ring
from flagscale_perf.spine.slots import SLOT_BYTES, Bytes, Layout, Wide
from flagscale_perf.training import records  # registers its types
from tests.fakes import make_step

_hot: Any = pytest.importorskip("flagscale_perf.spine._hot", reason="the extension is not built")
LAYOUTS = {type_: known.layout for type_, known in TYPES.items() if known.layout is not None}
# What `Ring.put` counts as a drop; anything else would go to the wall of the hooks.
DROP = (struct.error, OverflowError, TypeError, AttributeError, LookupError)


class NoIndex:
    """Not to be used as an integer, and not to be printed."""

    def __index__(self) -> int:
        raise ValueError("no index")

    def __str__(self) -> str:
        raise ValueError("no text")


class OddIndex:
    """Answers with what is no integer."""

    def __index__(self) -> Any:
        return "7"


class Seven:
    """An integer that is no int."""

    def __index__(self) -> int:
        return 7


EDGES = [
    0,
    1,
    -1,
    *(
        sign * 2**bits + off
        for bits in (31, 62, 63, 64, 127, 128, 400)
        for sign in (1, -1)
        for off in (-1, 0, 1)
    ),
]
ANYTHING = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(EDGES),
    st.sampled_from([None, True, 1.5, float("nan"), "text", b"bytes", (), [1, 2], {}, int]),
    st.sampled_from([NoIndex(), OddIndex(), Seven()]),
)  # fmt: skip


def _fitting(hint: Any) -> st.SearchStrategy[Any]:
    parts = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    values: st.SearchStrategy[Any] = st.integers(-(2**63), 2**63 - 1)
    if Wide in parts:
        values = st.integers(-(2**127), 2**127 - 1)
    elif hint == tuple[int, ...]:
        values = st.lists(values, max_size=28).map(tuple)
    elif get_origin(hint) is Annotated and get_args(hint)[0] is str:
        values = st.text(st.characters(), max_size=250)
    return values | st.none() if type(None) in parts else values


def _hints(record_type: type) -> list[Any]:
    return list(get_type_hints(record_type, include_extras=True).values())


def stored(layout: Layout, sequence: int, record: Any) -> tuple[bytes, str]:
    """The slot, which held something before, and what was raised: "", "drop" or the exception's name."""
    slot, raised = bytearray(range(256)), ""
    try:
        layout.packer()(memoryview(slot), 0, sequence, record)
    except DROP:
        raised = "drop"
    except ValueError as error:
        raised = repr(error)
    return bytes(slot), raised


def both(layout: Layout, sequence: int, record: Any) -> tuple[tuple[bytes, str], tuple[bytes, str]]:
    """By the extension, and by plain Python."""
    assert hot.extension is _hot
    by_extension = stored(layout, sequence, record)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot, "extension", None)
        return by_extension, stored(layout, sequence, record)


@pytest.mark.parametrize("record_type", LAYOUTS)
@given(data=st.data(), sequence=st.integers(0, 2**64 - 1))
def test_the_bytes_of_every_type_of_record_are_those_of_plain_python(
    record_type: Any, data: st.DataObject, sequence: int
) -> None:
    record = record_type._make(data.draw(st.tuples(*map(_fitting, _hints(record_type)))))
    by_extension, in_python = both(LAYOUTS[record_type], sequence, record)
    assert by_extension == in_python
    assert by_extension[1] == ""


@pytest.mark.parametrize("record_type", LAYOUTS)
@given(data=st.data())
def test_what_does_not_fit_is_the_same_kind_of_exception_and_changes_no_byte(
    record_type: Any, data: st.DataObject
) -> None:
    hints = _hints(record_type)
    values = data.draw(st.tuples(*map(_fitting, hints)).map(list))
    values[data.draw(st.integers(0, len(hints) - 1))] = data.draw(ANYTHING | st.lists(ANYTHING, max_size=40))
    by_extension, in_python = both(LAYOUTS[record_type], 5, tuple.__new__(record_type, values))
    assert by_extension[1] == in_python[1]
    assert by_extension[0] == (bytes(range(256)) if by_extension[1] else in_python[0])


SORTS = st.one_of(
    st.sampled_from([int, int | None, Wide, Wide | None]),
    st.integers(0, 60).map(lambda size: Annotated[str, Bytes(size)]),
)


@given(data=st.data(), hints=st.lists(SORTS, min_size=1, max_size=12))
def test_any_layout_and_so_the_checksum_of_any_length(data: st.DataObject, hints: list[Any]) -> None:
    made: Any = NamedTuple("made", [(f"n{place}", hint) for place, hint in enumerate(hints)])  # type: ignore[misc]
    try:
        layout = Layout(255, made)
    except TypeError:
        return  # more than a slot holds
    by_extension, in_python = both(layout, 1, made(*data.draw(st.tuples(*map(_fitting, hints)))))
    assert by_extension == in_python


@pytest.mark.parametrize("count", [0, 21, 23])
def test_a_record_with_other_fields_is_a_drop(count: int) -> None:
    record = tuple.__new__(records.StepRecord, range(count))
    by_extension, in_python = both(LAYOUTS[records.StepRecord], 1, record)
    assert (by_extension, in_python[1]) == ((bytes(range(256)), "drop"), "drop")


class Shrinking(list[Any]):
    """A list that empties itself while its items are read."""

    def __index__(self) -> int:
        self.clear()
        return 1


def test_a_list_that_changes_while_it_is_packed_does_no_harm() -> None:
    marks = Shrinking()
    marks += [marks, 2**40, 2**41]
    layout = LAYOUTS[records.MarksRecord]
    by_extension = stored(layout, 1, records.MarksRecord(1, 3, marks))  # type: ignore[arg-type]
    assert (by_extension[1], marks) == ("", [])
    assert layout.unpack(by_extension[0][4 : 16 + 40]) == records.MarksRecord(1, 3, (1, 2**40, 2**41))


class Endless:
    """Says that it holds two integers."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Any:
        return iter([1, 2, 3])


@pytest.mark.parametrize("marks", [Endless(), iter([1]), range(29), None])
def test_what_is_no_sequence_of_so_many_is_a_drop(marks: Any) -> None:
    by_extension, in_python = both(LAYOUTS[records.MarksRecord], 1, records.MarksRecord(1, 2, marks))
    assert (by_extension[1], in_python[1]) == ("drop", "drop")


def test_a_value_that_releases_the_ring_does_no_harm() -> None:
    ring = Ring.create(slots=1)

    class Releasing:
        def __index__(self) -> int:
            ring.release()
            return 1

    with pytest.raises(ValueError, match="released memoryview"):
        ring.put(make_step(1, samples=Releasing()))


@pytest.mark.parametrize("offset", [-1, 1, 2**62, -(2**62)])
def test_nothing_is_stored_outside_of_the_memory(offset: int) -> None:
    slot = bytearray(SLOT_BYTES)
    full: Any = NamedTuple("full", [(f"n{n}", int) for n in range(30)])  # type: ignore[misc]
    with pytest.raises(LookupError):
        Layout(1, full).packer()(memoryview(slot), offset, 1, full(*range(30)))
    assert slot == bytes(SLOT_BYTES)


@pytest.mark.parametrize(
    "arguments",
    [(), (1,), (b"read only" * 99, 0, 1, (1,)), (None, 0, 1, (1,)), (bytearray(99), None, 1, (1,)),
     (bytearray(99), 2**99, 1, (1,)), (bytearray(99), 0, -1, (1,)), (bytearray(99), 0, 2**64, (1,)),
     (bytearray(99), 0, 1, [1])],
)  # fmt: skip
def test_wrong_arguments_of_a_packer_are_exceptions(arguments: Any) -> None:
    with pytest.raises((TypeError, OverflowError, BufferError)):
        _hot.Packer(1, [("i", 8)])(*arguments)
    with pytest.raises(TypeError):
        _hot.Packer(1, [("i", 8)])(*arguments, record=(1,))


@pytest.mark.parametrize(
    "arguments",
    [(), (1,), (1, None), (256, []), (-1, []), ("1", []), (1, [("i", 7)]), (1, [("x", 8)]), (1, [("", 8)]),
     (1, [("s", -1)]), (1, [("s", 256)]), (1, [("w", 8)]), (1, [("t", 0), ("i", 8)]), (1, [("i", 8)] * 31),
     (1, [("s", 0)] * 999), (1, ["i"]), (1, [("i",)]), (1, [(None, 8)]), (1, [("i", 2**70)])],
)  # fmt: skip
def test_wrong_fields_of_a_packer_are_exceptions(arguments: Any) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        _hot.Packer(*arguments)


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
    for record in ((1, 2**80, "a", [1, 2**50]), (None, None, "ä" * 9, ()), (2**64, 1, "", ()),
                   (1, 2**130, "", ()), (1, 1, "", (NoIndex(),)), (1, 1, "", Endless()),
                   (1, 1, NoIndex(), ()), 7):  # fmt: skip
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


# --- which of the two it is


def test_an_extension_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (hot.load(), _hot.VERSION) == (_hot, __version__)
    monkeypatch.setattr(_hot, "VERSION", "0.0.9")
    assert hot.load() is None


CODE = "from flagscale_perf.spine import hot; print(hot.extension is None)"


def test_a_variable_switches_it_off(run_python: Any) -> None:
    made: subprocess.CompletedProcess[str] = run_python("-c", CODE, env={hot.PLAIN_VARIABLE: "1"})
    assert (made.stdout, run_python("-c", CODE).stdout) == ("True\n", "False\n")


def test_without_the_extension_plain_python_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("flagscale_perf.spine._hot")
    monkeypatch.setitem(sys.modules, "flagscale_perf.spine._hot", None)
    monkeypatch.setattr(hot, "extension", hot.load())
    assert hot.extension is None
    marks, ring = hot.new_marks(2), Ring.create(slots=1)
    start_of_a_phase(SimpleNamespace(mark=marks.add))()
    ring.put(make_step(1))
    assert (type(marks), len(marks.take()), ring.take(1)) == (hot.Marks, 1, [make_step(1)])
    ring.release()
