"""Calls and operations on a timeline."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.lanes import Laid, laid
from flagscale_perf.analysis.timeline import Item
from flagscale_perf.trace.analysis.timeline import timeline
from tests.trace_runs import MS, US, Job, make_trace_header, pipeline

Arrow = tuple[str, str, int, str, int]  # its name; process and time at both ends


def _items(directory: Path, job: Job) -> list[Item]:
    session = open_session(job.write(directory))
    return [item for item in timeline(session).items(session) if isinstance(item, Item)]


def _arrows(items: list[Item]) -> list[Arrow]:
    ends = [(end, item.track.process) for item in items for end in item.ends]
    targets = {end.key: (process.title, end.at_ns) for end, process in ends if not end.is_source}
    return [(end.name, process.title, end.at_ns, *targets[end.key]) for end, process in ends if end.is_source]


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
    items = [item for item in timeline(job).items(job) if isinstance(item, Item)]
    hosts = {item.track.process.host for item in items}
    assert hosts == {"node0", "node1"} and len({item.track.process.key for item in items}) == 2
    assert _arrows(items) == [("8 samples", "Worker", 4 * MS - 1, "Worker", 50 * MS)]


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
    assert [arrow[-1] for arrow in _arrows(items)] == [20 * MS]
    (clear,) = [item for item in items if item.name == "clear"]
    assert (clear.begin_ns, clear.end_ns, clear.facts) == (40 * MS, 41 * MS, {"partition": "train"})


def test_a_request_for_samples_is_drawn_with_what_it_was_told(tmp_path: Path) -> None:
    job = Job()
    train = job.process("Train", 1)
    job.wait(train, "train", 0, 0)
    job.wait(train, "train", 5 * MS, 4)
    spans = _items(tmp_path, job)
    assert [(span.name, span.begin_ns, span.end_ns) for span in spans] == [
        ("too few samples", 0, MS),
        ("samples", 5 * MS, 6 * MS),
    ]
    assert {span.facts["task"] for span in spans} == {"train"}


def test_no_arrow_leads_from_a_put_of_other_fields(tmp_path: Path) -> None:
    job = Job()
    driver, train = job.process("Driver", 1), job.process("Train", 2)
    job.put(driver, 0, range(8), names=["prompt"])
    job.put(driver, 20 * MS, range(8), names=["note"])
    job.get(train, 40 * MS, range(8), names=["prompt"])
    assert [arrow[2] for arrow in _arrows(_items(tmp_path, job))] == [4 * MS - 1]


def test_an_arrow_leads_from_the_put_to_the_get(tmp_path: Path) -> None:
    items = _items(tmp_path, pipeline(steps=1))
    assert {item.track.process.name for item in items} == {"Rollout 101", "Train 102"}
    assert _arrows(items) == [("64 samples", "Rollout", 28 * MS - 1, "Train", 50 * MS)]


def test_stages_lie_end_to_end_in_their_operation(tmp_path: Path) -> None:
    items = _items(tmp_path, pipeline(steps=1))
    (put,) = [item for item in items if item.name == "put"]
    assert (put.begin_ns, put.end_ns) == (24 * MS, 28 * MS)
    assert [(name, begin_ns - 24 * MS, end_ns - 24 * MS) for name, begin_ns, end_ns in put.parts] == [
        ("select", 0, 100 * US),
        ("serialize", 100 * US, 300 * US),
        ("unit", 300 * US, 2300 * US),
        ("notify", 2300 * US, 3 * MS),
        ("tags", 3 * MS, 3600 * US),
    ]
    (train,) = [item for item in items if item.name == "train"]
    assert [part.name for part in train.parts] == ["get", "compute"]


def test_operations_at_the_same_time_have_lanes_of_their_own(tmp_path: Path) -> None:
    """Each with its stages."""
    job = Job()
    worker = job.process("W", 1)
    for number in range(4):
        job.put(worker, number * US, range(8 * number, 8 * number + 8))
    job.put(worker, 20 * MS, range(8))
    begins = [one for one in laid(_items(tmp_path, job)) if isinstance(one, Laid) and not one.is_end]
    assert [one.lane.place for one in begins if one.item.name == "put"] == [0, 1, 2, 3, 0]
    stages = [(one.lane.place, one.item.begin_ns) for one in begins if one.item.name == "select"]
    assert stages == [(0, 0), (1, US), (2, 2 * US), (3, 3 * US), (0, 20 * MS)]
