"""The ring under every order of puts, takes, commits, torn slots and a second end, beside a plain list that
does the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flagscale_perf.spine import hot
from flagscale_perf.spine.records import Record
from flagscale_perf.spine.ring import HEADER_BYTES, Ring
from flagscale_perf.spine.slots import SLOT_BYTES
from flagscale_perf.training.records import MARKS_PER_SLOT, MarksRecord
from tests.fakes import make_event, make_step

SLOTS = 4
INT64 = st.integers(-(2**63) + 1, 2**63 - 1)
FITTING = st.one_of(
    st.builds(
        make_step,
        INT64,
        start_ns=INT64,
        samples=INT64,
        model_flops=st.none() | st.integers(-(2**127) + 1, 2**127 - 1),
    ),
    st.builds(
        make_event,
        st.sampled_from(["note", "failure"]),
        text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40),
    ),
    st.builds(MarksRecord, INT64, INT64, st.lists(INT64, max_size=MARKS_PER_SLOT).map(tuple)),
)
UNFIT = st.sampled_from(
    [
        make_step(samples=2**63),
        make_step(model_flops=2**127),
        make_step(tokens="1"),
        make_step(tokens=1.5),
        make_step(outcome="x"),
        MarksRecord(1, 1, (0,) * (MARKS_PER_SLOT + 1)),
        MarksRecord(1, 2**63, ()),
        MarksRecord(1, 1, (2**63,)),
        MarksRecord(1, 1, (1.5,)),  # type: ignore[arg-type]
    ]
)


class RingBesideAList(RuleBasedStateMachine):
    """Both ends of one ring; `held` is what has been put and not committed."""

    def __init__(self) -> None:
        super().__init__()
        self.producer = Ring.create(SLOTS)
        self.consumer = Ring.attach(os.dup(self.producer.fd or 0))
        self.held: list[Record] = []
        self.dropped = self.committed = 0

    @rule(record=FITTING)
    def put(self, record: Record) -> None:
        self.producer.put(record)
        if len(self.held) < SLOTS:
            self.held.append(record)
        else:
            self.dropped += 1

    @rule(record=UNFIT)
    def put_what_does_not_fit(self, record: Record) -> None:
        self.producer.put(record)
        self.dropped += 1

    @rule(limit=st.integers(0, 2 * SLOTS))
    def take(self, limit: int) -> None:
        assert self.consumer.take(limit) == self.held[:limit]

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, len(self.held)))
        self.consumer.commit(count)
        self.committed += count
        del self.held[:count]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), flip=st.integers(1, 255))
    def a_torn_slot_hides_itself_and_what_is_behind_it(self, data: st.DataObject, flip: int) -> None:
        place = data.draw(st.integers(0, len(self.held) - 1))
        slot = HEADER_BYTES + (self.committed + place) % SLOTS * SLOT_BYTES
        offset = slot + data.draw(
            st.integers(0, 15)
        )  # checksum, kind, padding (checked, too), length, sequence number
        self.producer._memory[offset] ^= flip
        assert self.consumer.take(SLOTS) == self.held[:place]
        self.producer._memory[offset] ^= flip

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def a_half_stored_slot_is_not_there(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.held) - 1))
        slot = HEADER_BYTES + (self.committed + place) % SLOTS * SLOT_BYTES
        whole = self.producer._memory[slot : slot + SLOT_BYTES]
        stored = data.draw(st.integers(0, 15))
        self.producer._memory[slot + stored : slot + SLOT_BYTES] = bytes(
            byte ^ 0xFF for byte in whole[stored:]
        )  # of an earlier round
        assert self.consumer.take(SLOTS) == self.held[:place]
        self.producer._memory[slot : slot + SLOT_BYTES] = whole

    @rule()
    def another_consumer_goes_on(self) -> None:
        self.consumer.release()
        self.consumer = Ring.attach(os.dup(self.producer.fd or 0))

    @invariant()
    def counts_are_right(self) -> None:
        assert (self.consumer.dropped, self.consumer.saved) == (self.dropped, self.committed)

    def teardown(self) -> None:
        self.consumer.release()
        self.producer.release()


class PlainRingBesideAList(RingBesideAList):
    """The producer without the extension."""

    def __init__(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hot, "extension", None)
            super().__init__()


TestRingBesideAList = RingBesideAList.TestCase
TestRingBesideAList.settings = settings(settings.default, stateful_step_count=30)
TestPlainRingBesideAList = PlainRingBesideAList.TestCase
TestPlainRingBesideAList.settings = settings(settings.default, stateful_step_count=30)


@given(st.lists(st.binary(min_size=SLOT_BYTES, max_size=SLOT_BYTES), min_size=1, max_size=3))
def test_any_memory_in_the_slots_is_no_record_and_no_exception(slots: list[bytes]) -> None:
    ring = Ring.create(SLOTS)
    for place, content in enumerate(slots):
        offset = HEADER_BYTES + place * SLOT_BYTES
        ring._memory[offset : offset + SLOT_BYTES] = content
    assert ring.take(SLOTS) == []
    ring.release()


@given(
    st.text(st.characters(), max_size=300),
    st.text(st.characters(), max_size=300),
    st.text(st.characters(), max_size=300),
)
def test_the_texts_of_the_header_come_back_as_far_as_there_is_room(
    reason: str, session: str, summary: str
) -> None:
    ring = Ring.create(1)
    ring.close(reason, 5)
    ring.session, ring.summary = session, summary
    for found, given_text in (
        (ring.end and ring.end.reason, reason),
        (ring.session, session),
        (ring.summary, summary),
    ):
        whole = given_text.encode("utf-8", "backslashreplace").decode()
        assert found is not None
        assert whole.startswith(found)
        assert found == whole or len(found.encode()) > 230
    ring.release()


PRODUCER = """
import random, sys
from flagscale_perf.spine.ring import HEADER_BYTES, Ring
from tests.fakes import make_step
ring, wanted, chance = Ring.attach(int(sys.argv[1])), int(sys.argv[2]), random.Random(int(sys.argv[3]))
for number in range(1, wanted + 1):
    ring.put(make_step(number, samples=number * 7, model_flops=number << 70))
    while chance.random() < 0.02:
        pass
ring.close("completed", wanted)
"""


@pytest.mark.parametrize("plain", ["", "1"])
def test_what_another_process_puts_comes_once_whole_and_in_order_or_is_counted(
    repo: Path, plain: str
) -> None:
    ring, wanted = Ring.create(16), 20_000
    assert ring.fd is not None
    command = [sys.executable, "-c", PRODUCER, str(ring.fd), str(wanted), "7"]
    last = taken = 0
    given = {"cwd": repo, "env": os.environ | {hot.PLAIN_VARIABLE: plain}, "stdout": subprocess.DEVNULL}
    with subprocess.Popen(command, pass_fds=(ring.fd,), **given) as producer:
        while True:
            is_over = ring.end is not None or producer.poll() is not None  # asked before the last look
            records = ring.take(5)
            for record in records:
                assert record == make_step(
                    record.iteration, samples=record.iteration * 7, model_flops=record.iteration << 70
                )
                assert record.iteration > last
                last = record.iteration
            ring.commit(len(records))
            taken += len(records)
            if is_over and not records:
                break
    assert (producer.returncode, ring.end and ring.end.reason) == (0, "completed")
    assert (taken + ring.dropped, last > 0) == (wanted, True)
    ring.release()
