"""Calls and operations as spans: ids, parents, links, and times to the nanosecond."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import Id, Item
from flagscale_perf.trace.analysis.timeline import timeline, trace_number
from tests import trace_runs
from tests.queue_sample import MONO_NS, TRACE, operation, records, run
from tests.trace_runs import MS, make_trace_header

GIVEN = 0x0AF7651916CD43DD8448EB211C80319C


def spans_of(session: Session) -> list[Item]:
    return [item for item in timeline(session).items(session) if isinstance(item, Item) and item.id]


def test_what_is_made_in_a_call_has_its_trace_and_it_as_parent(tmp_path: Path) -> None:
    put, rollout, *_ = spans_of(run(tmp_path))
    process = put.track.process
    assert (process.title, process.pid, process.host, process.session) == (
        "RolloutWorker",
        101,
        "node1",
        "20260102_030405",
    )
    assert put == Item(
        name="put",
        track=put.track,
        begin_ns=MONO_NS + 1_000,
        end_ns=MONO_NS + 1_500,
        facts={
            "number": 1,
            "call": 2,
            "unit_ns": 250,
            "slowest_unit": "TQ_STORAGE_UNIT_1",
            "slowest_unit_ns": 200,
            "size_bytes": 64,
            "rows": 4,
            "fields": 1,
            "first_row": 0,
            "last_row": 3,
            "partition": "train",
            "trace_id": TRACE,
        },
        id=Id(GIVEN, put.id.span if put.id else 0),
        parent=rollout.id,
        parts=(("unit", MONO_NS + 1_000, MONO_NS + 1_250),),
        ends=put.ends,
        kind="producer",
    )
    assert (rollout.name, rollout.kind, rollout.parent, rollout.id and rollout.id.trace) == (
        "rollout",
        "internal",
        None,
        GIVEN,
    )
    assert (rollout.begin_ns, rollout.end_ns) == (MONO_NS + 500, MONO_NS + 1_600)


def test_a_get_links_to_the_put_that_made_its_rows(tmp_path: Path) -> None:
    put, _, get, *_ = spans_of(run(tmp_path))
    assert (get.name, get.kind, get.links, get.parent) == ("get", "consumer", (put.id,), None)
    assert (
        get.id and put.id and get.id.trace != put.id.trace
    )  # it has no id of its own, so it is a trace of its own
    assert get.facts["weight"] == 2.0 and "size_bytes" not in get.facts


def test_a_call_that_failed_has_its_error_and_no_put(tmp_path: Path) -> None:
    *_, orphan, failed = spans_of(run(tmp_path))
    assert (failed.name, failed.error, "put_ns" in failed.facts) == ("update", "rollout", False)
    # the call it was made in was never recorded
    assert (orphan.name, orphan.facts["call"], orphan.parent, orphan.links) == ("get", 9, None, ())


def test_each_record_is_one_span_and_ids_are_the_same_each_time(tmp_path: Path) -> None:
    first, second = spans_of(run(tmp_path)), spans_of(run(tmp_path))
    assert [span.id for span in first] == [span.id for span in second]
    assert len(first) == len({span.id.span for span in first if span.id}) == 5


def test_spans_of_several_machines_are_linked_and_have_the_ids_they_have_alone(tmp_path: Path) -> None:
    one, two = trace_runs.Job(), trace_runs.Job()
    one.put(one.process("P", 1), 0, range(8))
    two.get(two.process("C", 1), 1050 * MS, range(8))
    header = make_trace_header("20240129_103001", host="node1", boot_id="other", start_mono_ns=1000 * MS)
    paths = one.write(tmp_path), two.write(tmp_path, header)
    put, get = spans_of(open_session(paths[0]))
    assert get.links == (put.id,)
    found = [(span.track.process.host, span.track.process.session, span.begin_ns) for span in (put, get)]
    assert found == [("node0", "20240129_103000", 0), ("node1", "20240129_103001", 50 * MS)]
    alone = sorted(spans_of(open_session(paths[1])), key=lambda span: span.begin_ns)
    assert [(span.id, span.links) for span in alone] == [(span.id, span.links) for span in (put, get)]


def test_a_put_that_the_file_has_later_is_linked(tmp_path: Path) -> None:
    header, producer, *rest = records()
    names, put, rollout = rest[:4], rest[4], rest[5]
    spans = spans_of(run(tmp_path, [header, *rest[6:], producer, *names, put, rollout]))
    get = next(span for span in spans if span.kind == "consumer" and span.links)
    assert [link.trace for link in get.links] == [GIVEN] and put.number == 1


@pytest.mark.parametrize(
    ("text", "number"),
    [(TRACE, GIVEN), ("a1b2c3d4", 0xA1B2C3D4), ("A1B2C3D4", 0xA1B2C3D4), ("f" * 32, (1 << 128) - 1)],
)
def test_an_id_in_hexadecimal_digits_stays_the_same_number(text: str, number: int) -> None:
    assert trace_number(text) == number


@pytest.mark.parametrize("text", ["0", "step 7 | prompt 3", "f" * 33, "\x1b[31m", "样本"])
def test_any_other_text_has_an_id_of_its_own(text: str) -> None:
    assert 0 < trace_number(text) < 1 << 128
    assert trace_number(text) == trace_number(text) != trace_number(text + "1")


def test_operations_without_ids_are_traces_of_their_own(tmp_path: Path) -> None:
    header, producer, *_ = records()
    made = [header, producer, *(operation(0, number, 2_000, 5) for number in (1, 2))]
    assert len({span.id.trace for span in spans_of(run(tmp_path, made)) if span.id}) == 2


def test_calls_that_a_damaged_file_has_in_each_other_have_spans(tmp_path: Path) -> None:
    job = trace_runs.Job()
    process = job.process("P", 1)
    job.call(process, "rollout", 0)
    job.records[-1] = job.records[-1]._replace(parent=job.records[-1].number)
    (span,) = spans_of(open_session(job.write(tmp_path)))
    assert span.parent == span.id
