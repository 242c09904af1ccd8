"""Where traces are read from."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.peers.records import ProcessRecord
from flagscale_perf.spine.records import STOPPED, EventRecord
from flagscale_perf.trace.analysis.remarks import remarks_of
from flagscale_perf.trace.analysis.source import read_traces
from flagscale_perf.trace.records import Kind, UnitsRecord, UnsizedRecord
from tests.run_files import left_behind
from tests.trace_runs import MS, Job, lines_of_call, make_trace_header, pipeline


def test_a_run_file_says_who_and_how_it_ended(tmp_path: Path) -> None:
    traces = read_traces(open_session(pipeline(steps=1).write(tmp_path)))
    assert (traces.title, traces.subject, traces.versions, traces.state, traces.begun) == (
        "Queue traces of session 20240129_103000",
        "grpo",
        "TransferQueue 0.1.11",
        "completed",
        "2024-01-29 10:30:00",
    )
    assert (
        read_traces(open_session(left_behind(pipeline(steps=1).write(tmp_path, end=None)))).state == "killed"
    )


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        (("completed", None), "not known"),
        (("completed", STOPPED), "completed"),
        ((STOPPED, "exception"), "exception"),
    ],
)
def test_the_worst_end_of_any_machine_is_the_jobs(
    tmp_path: Path, ends: tuple[str | None, str | None], state: str
) -> None:
    path = pipeline(steps=1).write(tmp_path, end=ends[0])
    header = make_trace_header("20240129_103001", host="node1", boot_id="other")
    pipeline(steps=1).write(tmp_path, header, end=ends[1])
    assert read_traces(open_session(path)).state == state


def test_losses_are_those_of_the_processes_last_records(tmp_path: Path) -> None:
    job = Job()
    job.process("W", 1)
    job.records.append(ProcessRecord(1, 1, "W", 0, "gone", 3, 2))
    job.records.append(ProcessRecord(2, 5, "V", 0, "gone", 0, None))
    losses = read_traces(open_session(job.write(tmp_path))).losses
    assert (losses.dropped, losses.lost, losses.uncertain) == (3, 2, ["V 5"])


def test_every_loss_is_a_sentence(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    lines = lines_of_call(behind=" | pid=7 | number=1")[:-1] + lines_of_call(behind=" | pid=7 | number=4")
    lines += [lines_of_call()[0][:40], lines_of_call()[2] + " [repeated 3x across cluster]"]
    lines += lines_of_call(behind=" | pid=7 | number=7")[-1:]
    log.write_text("\n".join(lines))
    assert remarks_of(read_traces(open_session(log))) == [
        "2 lines lost: Ray left them out as repetitions; complete files: tq_trace_<pid>.log in TQ_TRACE_DIR,"
        " or worker-*-<pid>.out in the logs of Ray's session. Set RAY_DEDUP_LOGS_ALLOW_REGEX='\\[TQ-' before"
        " the driver imports ray",
        "1 trace lines are torn and were left out",
        "2 calls and operations were made and did not come, by their numbers",
    ]


def test_operations_whose_bytes_are_not_all_known_are_counted_with_their_fields(tmp_path: Path) -> None:
    job = Job()
    process = job.process("W", 1)
    image, tools = job.name(process, "image"), job.name(process, "tools")
    for fields in ((image,), (image, tools)):
        job.records.append(UnsizedRecord(process, job.coming(process, 0), 5, fields))
        job.put(process, 0, [0], size_bytes=None)
    traces = read_traces(open_session(job.write(tmp_path)))
    assert traces.sums.operations[Kind.PUT].size.count == 0
    (remark,) = remarks_of(traces)
    assert remark.startswith("2 operations have fields whose bytes are not known (image, tools): ")


def test_damaged_lines_of_a_run_file_are_skipped(tmp_path: Path) -> None:
    path = pipeline(steps=1).write(tmp_path)
    path.write_bytes(path.read_bytes() + b'{"kind":"tq_operation","process":1}\n')
    reading = read_traces(open_session(path)).reading
    assert reading is not None and reading.skipped == 1


def test_a_run_file_of_another_job_is_left_alone(tmp_path: Path) -> None:
    path = pipeline(steps=1).write(tmp_path)
    other = make_trace_header("20240129_103005", host="node1", facts={"job": "another"})
    pipeline(steps=1).write(tmp_path, other)
    (tmp_path / "perf_records_20240129_103009.jsonl").write_bytes(encode(make_trace_header())[:30])
    assert read_traces(open_session(path)).sums.calls == 2


def test_requests_that_were_made_again_count_with_their_unit_and_are_remarked(tmp_path: Path) -> None:
    job = Job()
    worker = job.process("W", 1)
    names = [job.name(worker, unit) for unit in ("a", "b")]
    job.records.append(UnitsRecord(worker, 1, (names[0], 5 * MS, names[1], 2 * MS, names[0], 7 * MS)))
    job.get(worker, 0, range(4))
    traces = read_traces(open_session(job.write(tmp_path)))
    (held,) = traces.sums.operations[Kind.GET].held.items()
    assert (held[0], held[1].total) == ("a", 10 * MS)
    assert remarks_of(traces) == ["1 requests had no answer and were made again, by unit: a 1"]


def test_what_the_adapter_does_not_know_is_in_the_report_once(tmp_path: Path) -> None:
    job = Job()
    job.get(job.process("W", 1), 0, range(4))
    job.records += [EventRecord("note", at, 0, "async_put is gone") for at in (1, 2)]
    assert remarks_of(read_traces(open_session(job.write(tmp_path)))) == ["note: async_put is gone"]
