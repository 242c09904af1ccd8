"""What happens to a traced job whose processes, writer, disk or directory fail: its calls come back as they
would, and the run file has each of them, or says how many it has not.
"""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.spine.records import EventRecord
from tests.faults import page, results_trace
from tests.faults.catalog_trace import TRACE, TraceFault
from tests.faults.page import LATER, NOTHING
from tests.members import ends, records_in, wait_for, writers_of
from tests.trace.job import Job
from tests.traced import numbers

pytestmark = pytest.mark.usefixtures("queue")


@pytest.fixture(scope="session")
def record(pytestconfig: pytest.Config) -> Iterator[page.Record]:
    """Of the figures of each fault."""
    yield from page.recorder(pytestconfig, results_trace.write)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.name, marks=() if fault.short_calls else (pytest.mark.faults,))
        for fault in TRACE
    ],
)
def test_what_is_promised_holds(
    fault: TraceFault,
    tmp_path: Path,
    ray_session: Path,
    record: page.Record,
    pytestconfig: pytest.Config,
) -> None:
    if fault.short_calls and not pytestconfig.getoption("record"):
        fault = replace(fault, calls=fault.short_calls)
    figures = {"times": fault.times, "done": 0, "kept": 0, "lost": 0, "lines": 0}
    for seed in range(fault.times):
        directory = tmp_path / str(seed)
        (directory / "trace").mkdir(parents=True)
        with fault.around(directory / "trace"):
            job = run(fault, random.Random(seed), directory, ray_session)
            for name, value in checked(fault, job).items():
                figures[name] += value
    record(fault.name, figures)


def run(fault: TraceFault, chance: random.Random, directory: Path, log: Path) -> Job:
    """The job, ended."""
    job = Job.start(directory, log, fault.actors, fault.calls)
    job.work()
    fault.act(job, chance)
    job.join()
    job.end()
    return job


def checked(fault: TraceFault, job: Job) -> dict[str, int]:
    """Raises what does not hold. Returns the figures of the page."""
    if fault.loses == LATER:  # it waits for room that never comes, and leaves after 10 s if nobody ends it
        for writer in writers_of(job.trace):
            os.kill(writer, signal.SIGKILL)
    wait_for(lambda: not writers_of(job.trace))
    records = records_in(job.trace)
    found, ended, said = numbers(records), ends(records), job.said
    assert found.keys() == job.tallies.keys()
    assert len(job.tallies) == fault.actors + len(job.children)
    lost = 0
    for pid, (begun, done) in job.tallies.items():
        assert done == fault.calls or pid in job.killed
        if fault.loses == NOTHING:
            assert found[pid] in [list(range(1, count + 1)) for count in (done, begun)]
            assert ended[pid][1:] == (0, 0)
            assert lines_of(job, pid) == len(found[pid])
        elif fault.loses == LATER:
            missing = said_of(pid, said)
            assert found[pid] == list(range(1, len(found[pid]) + 1))
            assert done <= len(found[pid]) + missing
            lost += missing
        else:
            assert found[pid] == list(range(done - len(found[pid]) + 1, done + 1))
    texts = [*said, *(record.text for record in records if isinstance(record, EventRecord))]
    assert any(fault.says in text for text in ["", *texts])
    done = sum(done for _, done in job.tallies.values())
    return {"done": done, "kept": sum(map(len, found.values())), "lost": lost, "lines": len(said)}


def lines_of(job: Job, pid: int) -> int:
    """How many operations have ended by the log of the process."""
    return (job.trace / f"tq_trace_{pid}.log").read_text().count("_END ")


def said_of(pid: int, said: list[str]) -> int:
    """How many of its records the process has said to be missing."""
    (line,) = [text for text in said if text.startswith(f"process {pid}: ")]
    return int(re.search(r"(\d+) of \d+ records are not yet in .* No space left on device", line)[1])
