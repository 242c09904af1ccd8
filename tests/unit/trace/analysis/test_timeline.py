"""Calls and operations on a timeline."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.timeline import Arrow, Item, Name, Span, Track
from flagscale_perf.trace.analysis import timeline as module
from flagscale_perf.trace.analysis.timeline import timeline
from tests.trace_runs import MS, US, Job, make_trace_header, pipeline


def _items(directory: Path, job: Job) -> list[Item]:
    session = open_session(job.write(directory))
    return list(timeline(session).items(session))


def test_an_arrow_leads_to_another_machine(tmp_path: Path) -> None:
    """Both have a process of the same name and pid, and the second clock stands at 1 s when the first does at
    0.
    """
    one, two = Job(), Job()
    one.put(one.process("Worker", 1), 0, range(8))
    two.get(two.process("Worker", 1), 1050 * MS, range(8))
    path = one.write(tmp_path)
    header = make_trace_header("20240129_103001", host="node1", boot_id="other", start_mono_ns=1000 * MS)
    two.write(tmp_path, header)
    job = open_session(path)
    items = list(job.items(timeline(job)))
    assert [item.text for item in items if isinstance(item, Name) and item.is_process] == [
        "Worker 1@node0",
        "Worker 1@node1",
    ]
    assert [item for item in items if isinstance(item, Arrow)] == [
        Arrow("8 samples", "0", Track(101, 100), 4 * MS - 1, Track(102, 100), 50 * MS + 1)
    ]


def test_what_was_cleared_has_no_arrow_and_a_clear_is_drawn_once(tmp_path: Path) -> None:
    """The second get has what was put again, of which nothing is recorded."""
    job = Job()
    driver, train = job.process("Driver", 1), job.process("Train", 2)
    job.put(driver, 0, range(8))
    job.get(train, 20 * MS, range(8))
    job.clear(driver, 40 * MS, (0, 4))
    job.clear(driver, 40 * MS, (4, 4))
    job.get(train, 60 * MS, range(8))
    items = _items(tmp_path, job)
    assert [item.target_ns for item in items if isinstance(item, Arrow)] == [20 * MS + 1]
    assert [item for item in items if isinstance(item, Span) and item.name == "clear"] == [
        Span(Track(101, 100), "clear", 40 * MS, 41 * MS, {"partition": "train", "error": None})
    ]


def test_a_request_for_samples_is_drawn_with_what_it_was_told(tmp_path: Path) -> None:
    job = Job()
    train = job.process("Train", 1)
    job.wait(train, "train", 0, 0)
    job.wait(train, "train", 5 * MS, 4)
    spans = [item for item in _items(tmp_path, job) if isinstance(item, Span)]
    assert [(span.name, span.start_ns, span.end_ns) for span in spans] == [
        ("too few samples", 0, MS),
        ("samples", 5 * MS, 6 * MS),
    ]
    assert {(span.args or {})["task"] for span in spans} == {"train"}


def test_no_arrow_leads_from_a_put_of_other_fields(tmp_path: Path) -> None:
    job = Job()
    driver, train = job.process("Driver", 1), job.process("Train", 2)
    job.put(driver, 0, range(8), names=["prompt"])
    job.put(driver, 20 * MS, range(8), names=["note"])
    job.get(train, 40 * MS, range(8), names=["prompt"])
    arrows = [item for item in _items(tmp_path, job) if isinstance(item, Arrow)]
    assert [arrow.source_ns for arrow in arrows] == [4 * MS - 1]


def test_an_arrow_leads_from_the_put_to_the_get(tmp_path: Path) -> None:
    items = _items(tmp_path, pipeline(steps=1))
    assert [item for item in items if isinstance(item, Name) and item.is_process] == [
        Name(Track(101, 0), "Rollout 101", True),
        Name(Track(102, 0), "Train 102", True),
    ]
    arrow = Arrow("64 samples", "0", Track(101, 100), 28 * MS - 1, Track(102, 100), 50 * MS + 1)
    assert [item for item in items if isinstance(item, Arrow)] == [arrow]


def test_stages_lie_end_to_end_in_their_operation(tmp_path: Path) -> None:
    spans = [item for item in _items(tmp_path, pipeline(steps=1)) if isinstance(item, Span)]
    put = [
        (span.name, span.start_ns - 24 * MS, span.end_ns - 24 * MS)
        for span in spans
        if span.track == Track(101, 100)
    ]
    assert put == [
        ("put", 0, 4 * MS),
        ("select", 0, 100 * US),
        ("serialize", 100 * US, 300 * US),
        ("unit", 300 * US, 2300 * US),
        ("notify", 2300 * US, 3 * MS),
        ("tags", 3 * MS, 3600 * US),
    ]
    assert [span.name for span in spans if span.track == Track(102, 1)] == ["train", "get", "compute"]


def test_operations_at_the_same_time_have_lanes_of_their_own(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST_LANES", 2)
    job = Job()
    worker = job.process("W", 1)
    for number in range(4):
        job.put(worker, number * US, range(8 * number, 8 * number + 8))
    job.put(worker, 20 * MS, range(8))
    spans = [item for item in _items(tmp_path, job) if isinstance(item, Span) and item.name == "put"]
    assert [(span.track.thread, span.category) for span in spans] == [
        (100, ""),
        (101, ""),
        (102, "in flight"),
        (102, "in flight"),
        (100, ""),
    ]
