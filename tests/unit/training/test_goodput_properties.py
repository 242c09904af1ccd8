"""Every nanosecond is in exactly one class, whatever was recorded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.spine.records import Record, RunEnd
from flagscale_perf.training.goodput import Goodput, SessionGoodput
from tests.fakes import SECOND, make_header
from tests.strategies import any_record, runs

CLASSES = (
    "startup_ns",
    "productive_ns",
    "evaluation_ns",
    "checkpoint_ns",
    "data_stall_ns",
    "late_ns",
    "lost_ns",
    "idle_ns",
)


def total_of(goodput: Goodput) -> int:
    return sum(getattr(goodput, name) or 0 for name in CLASSES)


def folded(records: list[Record], kept_until: int | None = None) -> Goodput:
    session = SessionGoodput(make_header(), kept_until)
    for record in records:
        session.add(record)
    return session.result()


@given(runs(), st.none() | st.integers(0, 60), st.integers(0, 10**12))
def test_the_classes_of_a_run_add_up_and_none_is_negative(
    records: list[Record], kept_until: int | None, end_ns: int
) -> None:
    end = RunEnd("completed", make_header().start_wall_ns + end_ns, 9, 0)
    for part in (records, [*records, end]):
        goodput = folded(part, kept_until)
        assert total_of(goodput) == goodput.wall_ns
        assert min(getattr(goodput, name) or 0 for name in CLASSES) >= 0
        assert goodput.ettr is None or 0 <= goodput.ettr <= 1


@given(st.lists(any_record, max_size=8), st.none() | st.integers(0, 60))
def test_the_classes_of_anything_add_up(records: list[Record], kept_until: int | None) -> None:
    goodput = folded(records, kept_until)
    assert total_of(goodput) == goodput.wall_ns


@given(runs(10), runs(10), st.integers(0, 100 * SECOND))
def test_sessions_and_the_gap_between_them_add_up(
    first: list[Record], second: list[Record], gap_ns: int
) -> None:
    one, other = folded(first), folded(second)
    whole = one + other.with_gap(gap_ns)
    assert total_of(whole) == whole.wall_ns == one.wall_ns + other.wall_ns + gap_ns
