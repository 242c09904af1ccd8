"""The extension beside plain Python: the same bytes in the ring, the same marks, and an exception, never a
crash, for whatever else it is given.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, NamedTuple, cast, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flagscale_perf import __version__
from flagscale_perf.hosts.timers import phase_timer
from flagscale_perf.spine import hot
from flagscale_perf.spine.records import TYPES
from flagscale_perf.spine.ring import Ring
from flagscale_perf.spine.slots import SLOT_BYTES, Bytes, Layout, Wide
from flagscale_perf.training import records  # registers its types
from tests.fakes import make_step

_hot: Any = pytest.importorskip("flagscale_perf.spine._hot", reason="the extension is not built")
LAYOUTS = {type_: known.layout for type_, known in TYPES.items() if known.layout is not None}
# All types are packed by the same few kinds of fields: together they get several hundred examples.
OF_EACH_TYPE = settings(max_examples=settings.default.max_examples // 3)
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
)


def _fitting(hint: Any) -> st.SearchStrategy[Any]:
    parts = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    values: st.SearchStrategy[Any] = st.integers(-(2**63), 2**63 - 1)
    if Wide in parts:
        values = st.integers(-(2**127), 2**127 - 1)
    elif hint == tuple[int, ...]:
        values = st.lists(values, max_size=22).map(tuple)  # what every type has room for
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
@OF_EACH_TYPE
@given(data=st.data(), sequence=st.integers(0, 2**64 - 1))
def test_the_bytes_of_every_type_of_record_are_those_of_plain_python(
    record_type: Any, data: st.DataObject, sequence: int
) -> None:
    record = record_type._make(data.draw(st.tuples(*map(_fitting, _hints(record_type)))))
    by_extension, in_python = both(LAYOUTS[record_type], sequence, record)
    assert by_extension == in_python
    assert by_extension[1] == ""


@pytest.mark.parametrize("record_type", LAYOUTS)
@OF_EACH_TYPE
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
    [
        (),
        (1,),
        (b"read only" * 99, 0, 1, (1,)),
        (None, 0, 1, (1,)),
        (bytearray(99), None, 1, (1,)),
        (bytearray(99), 2**99, 1, (1,)),
        (bytearray(99), 0, -1, (1,)),
        (bytearray(99), 0, 2**64, (1,)),
        (bytearray(99), 0, 1, [1]),
    ],
)
def test_wrong_arguments_of_a_packer_are_exceptions(arguments: Any) -> None:
    with pytest.raises((TypeError, OverflowError, BufferError)):
        _hot.Packer(1, [("i", 8)])(*arguments)
    with pytest.raises(TypeError):
        _hot.Packer(1, [("i", 8)])(*arguments, record=(1,))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (1,),
        (1, None),
        (256, []),
        (-1, []),
        ("1", []),
        (1, [("i", 7)]),
        (1, [("x", 8)]),
        (1, [("", 8)]),
        (1, [("s", -1)]),
        (1, [("s", 256)]),
        (1, [("w", 8)]),
        (1, [("t", 0), ("i", 8)]),
        (1, [("i", 8)] * 31),
        (1, [("s", 0)] * 999),
        (1, ["i"]),
        (1, [("i",)]),
        (1, [(None, 8)]),
        (1, [("i", 2**70)]),
    ],
)
def test_wrong_fields_of_a_packer_are_exceptions(arguments: Any) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        _hot.Packer(*arguments)


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
    phase_timer(cast(Any, SimpleNamespace(mark=marks.add)), "optimizer").start()
    ring.put(make_step(1))
    assert (type(marks), len(marks.take()), ring.take(1)) == (hot.Marks, 1, [make_step(1)])
    ring.release()
