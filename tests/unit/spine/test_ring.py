"""The capture buffer: exact values, order, overflow, and slots that are not whole."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flagscale_perf.spine.records import TYPES, EventRecord
from flagscale_perf.spine.ring import HEADER_BYTES, Ring, RingEnd
from flagscale_perf.spine.slots import Wide
from flagscale_perf.training.records import MARKS_PER_SLOT, MarksRecord, StepRecord
from tests.fakes import make_event, make_step

pytestmark = pytest.mark.usefixtures("either_way")

INT64 = st.integers(-(2**63) + 1, 2**63 - 1)
WIDE = st.integers(-(2**127) + 1, 2**127 - 1)


@pytest.fixture
def ring():
    made = Ring.create(slots=8)
    yield made
    made.release()


def second_end(ring: Ring) -> Ring:
    assert ring.fd is not None
    return Ring.attach(os.dup(ring.fd))


def test_records_come_out_in_order_and_equal(ring: Ring) -> None:
    records = [
        make_step(1, warmup=1),
        make_event("resume", iteration=1, text="after iteration 0"),
        MarksRecord(2, 3, (1, 2**63 - 1, -5)),
        make_step(2),
    ]
    for record in records:
        ring.put(record)
    assert ring.take(10) == records
    assert [type(record) for record in ring.take(10)] == [StepRecord, EventRecord, MarksRecord, StepRecord]


def _values(hint: Any) -> st.SearchStrategy[Any]:
    wide = any(part is Wide for part in (hint, *get_args(hint)))
    numbers = WIDE if wide else INT64
    return st.none() | numbers if type(None) in get_args(hint) else numbers


@settings(max_examples=200, deadline=None)
@given(st.tuples(*map(_values, get_type_hints(StepRecord, include_extras=True).values())))
def test_integers_out_are_the_integers_in(values) -> None:
    ring = Ring.create(slots=1)
    record = StepRecord(*values)
    ring.put(record)
    assert ring.take(1) == [record]
    ring.release()


@pytest.mark.parametrize("count", range(MARKS_PER_SLOT + 1))
def test_marks_out_are_the_marks_in(ring: Ring, count: int) -> None:
    record = MarksRecord(7, 20_000, tuple(2**62 + n for n in range(count)))
    ring.put(record)
    assert ring.take(1) == [record]


def test_a_long_event_is_cut_to_its_slot(ring: Ring) -> None:
    ring.put(make_event("failure", text="ä" * 150))
    assert ring.take(1) == [make_event("failure", text="ä" * 100)]


@pytest.mark.parametrize("record", [(1, 2), object(), 7])
def test_what_is_no_record_is_a_drop_and_no_exception(ring: Ring, record: Any) -> None:
    ring.put(record)
    assert (ring.stored, ring.dropped, ring.take(9)) == (0, 1, [])


def test_a_slot_with_one_wrong_byte_counts_as_not_there(ring: Ring) -> None:
    ring.put(make_step(1))
    layout = TYPES[StepRecord].layout
    assert layout is not None
    for offset in range(HEADER_BYTES, HEADER_BYTES + layout.size):
        ring._memory[offset] ^= 0x10
        assert ring.take(1) == []
        ring._memory[offset] ^= 0x10
    assert ring.take(1) == [make_step(1)]


def test_the_other_end_sees_records_texts_and_counts(ring: Ring) -> None:
    other = second_end(ring)
    for iteration in range(1, 10):
        ring.put(make_step(iteration))
    assert (other.end, ring.session, ring.summary) == (None, None, None)
    ring.close("exit 3", 77)
    other.session = "20240129_103000_2"
    other.summary = ""
    assert (other.end, other.dropped, len(other.take(99))) == (RingEnd("exit 3", 77), 1, 8)
    assert (ring.session, ring.summary) == ("20240129_103000_2", "")
    other.commit(8)
    other.release()
    ring.put(make_step(10))
    assert ring.take(9) == [make_step(10)]


def test_only_a_ring_is_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(mmap.PAGESIZE * 4))
    fd = os.open(path, os.O_RDWR)
    with pytest.raises(ValueError, match="is not a ring of this version"):
        Ring.attach(fd)
    os.close(fd)


def test_a_ring_of_another_version_is_refused(ring: Ring) -> None:
    ring._memory[0] ^= 1  # the last byte of "FSPERF4", first in memory
    with pytest.raises(ValueError, match="is not a ring of this version"):
        second_end(ring)


def test_a_text_with_one_wrong_byte_is_not_there(ring: Ring) -> None:
    ring.producer = "rank 7"
    for offset in range(5120, 5120 + 8 + len("rank 7")):
        ring._memory[offset] ^= 0x10
        assert ring.producer is None
        ring._memory[offset] ^= 0x10
    assert ring.producer == "rank 7"


def test_without_shared_memory_files_a_temporary_file_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    ring = Ring.create(slots=2)
    other = second_end(ring)
    ring.put(make_step(1))
    assert other.take(1) == [make_step(1)]
    other.release()
    ring.release()


def test_without_any_descriptor_the_ring_serves_its_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args):
        raise OSError("no room")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    ring = Ring.create(slots=2)
    ring.put(make_step(1))
    assert (ring.fd, ring.take(1)) == (None, [make_step(1)])
    ring.release()


NO_ROOM = """
import os, resource
from flagscale_perf.spine.ring import Ring
in_use = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (in_use + (4 << 20),) * 2)
before = os.dup(0)
try:
    Ring.create()
except OSError as error:
    print(error.strerror, os.dup(0) - before)
"""


def test_memory_that_cannot_be_mapped_is_given_back(run_python) -> None:
    assert run_python("-c", NO_ROOM).stdout == "Cannot allocate memory 1\n"
