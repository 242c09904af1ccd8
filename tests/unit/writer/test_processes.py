"""Numbers of processes, and the books that are kept of what has come of each."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagscale_perf.profile.recording import ProfilePipeline
from flagscale_perf.profile.records import StepRecord
from flagscale_perf.spine.peers.handover import Source, Visitor
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.peers.rings import Slot
from flagscale_perf.spine.ring import Ring
from flagscale_perf.trace.options import TraceOptions
from flagscale_perf.trace.recording import TracePipeline
from flagscale_perf.trace.task import trace_task
from flagscale_perf.writer.instrument import Remark
from flagscale_perf.writer.processes import UNFOUND, ProcessesPipeline
from tests.traced import call, operation

BEGUN = ProcessRecord(1, 123, "Producer", 5, end=None, dropped=0, lost=0)


@pytest.fixture
def source() -> Iterator[Source]:
    ring = Ring.create(4)
    ring.producer = json.dumps(["Producer", 5])
    assert ring.fd is not None
    here, there = socket.socketpair()
    made = Source(Visitor(123, os.dup(ring.fd), there))
    yield made
    os.close(made.connection)
    made.release()
    here.close()
    ring.release()


@pytest.fixture
def pipeline() -> TracePipeline:
    return TracePipeline(trace_task(TraceOptions(True, True, Path("/unused"))), None)


def joined(pipeline: ProcessesPipeline, *slots: Slot) -> list[object]:
    records = pipeline.join(list(slots), is_full=False).records
    for record in records:
        pipeline.fold(record, 0)
    return records


def test_a_process_is_named_before_its_first_record_and_after_its_last(
    pipeline: TracePipeline, source: Source
) -> None:
    name, got, made = NameRecord(0, 1, "rollout"), operation(1), call(2)
    assert joined(
        pipeline, Slot(source, None), Slot(source, name), Slot(source, got), Slot(source, made)
    ) == [
        BEGUN,
        name._replace(process=1),
        got._replace(process=1),
        made._replace(process=1),
    ]
    source.end = "completed"
    (over,) = joined(pipeline, Slot(source, None))
    assert over == ProcessRecord(1, 123, "Producer", 5, end="completed", dropped=0, lost=0)
    assert (pipeline.position, pipeline.close(0)) == (2, [])


def test_numbers_that_are_missing_are_lost_the_last_ones_too(pipeline: TracePipeline, source: Source) -> None:
    joined(pipeline, Slot(source, None), Slot(source, operation(1)), Slot(source, operation(4)))
    for number in range(5, 11):
        source.ring.put(operation(number))  # four have room
    source.end = "gone"
    (over,) = pipeline.join([Slot(source, None)], False).records
    assert (over.dropped, over.lost) == (2, 8)
    (remark,) = pipeline.fold(over, 0)
    text = "process 123 (Producer): 8 of its calls and operations are lost, 2 records dropped"
    assert remark == Remark("drop", text, is_urgent=True)


def test_the_next_writer_goes_on_with_the_numbers_of_the_last_one(
    pipeline: TracePipeline, source: Source
) -> None:
    other = ProcessRecord(2, 124, "Other", 6, end=None, dropped=0, lost=0)
    for record in (BEGUN, other, operation(1, process=1)):
        pipeline.replay(record, 0)
    got = operation(2)
    assert joined(pipeline, Slot(source, None), Slot(source, got)) == [got._replace(process=1)]
    assert pipeline.close(0) == [
        ProcessRecord(1, 123, "Producer", 5, end=UNFOUND, dropped=0, lost=None),
        ProcessRecord(2, 124, "Other", 6, end=UNFOUND, dropped=0, lost=None),
    ]


def test_where_records_are_of_steps_the_last_step_is_the_position(source: Source) -> None:
    pipeline = ProfilePipeline(trace_task(TraceOptions(True, True, Path("/unused"))), None)
    step = StepRecord._make([0] * len(StepRecord._fields))
    for number, iteration in enumerate((7, 6, None), 1):
        joined(pipeline, Slot(source, step._replace(number=number, iteration=iteration)))
    assert pipeline.position == 7
