"""Samples that come late: planted in small runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trace_runs import MS, Job
from tests.unit.trace.analysis.test_findings import findings_of


@pytest.mark.parametrize("made_ns", [40 * MS, 100 * MS])
def test_a_consumer_that_waits_for_samples(tmp_path: Path, made_ns: int) -> None:
    """Samples are made in 40 or 100 ms, and used in 50; it asks each 5 ms. The truth is the other run."""
    job = Job()
    train = job.process("Train", 1)
    at_ns = 0
    for number in range(40):
        there_ns = (number + 1) * made_ns
        while at_ns < there_ns:
            job.wait(train, "train", at_ns, 0)
            at_ns += 5 * MS
        job.wait(train, "train", at_ns, 4)
        at_ns += 50 * MS
    found = findings_of(tmp_path, job)
    assert ("starvation" in found) == (made_ns > 50 * MS)
    if made_ns > 50 * MS:
        finding = found["starvation"]
        assert finding.title == "train waits 49.7 % of the time for samples"
        assert finding.cost_s == pytest.approx(39 * 0.050, rel=0.03)
        assert finding.gain == pytest.approx(4.0 / (0.1 + 39 * 0.05) - 1, rel=0.05)
        assert finding.evidence[0].figure.startswith("Train 1 waits, 1.9")


def test_stale_samples_and_whose(tmp_path: Path) -> None:
    job = Job()
    rollout, train = job.process("Rollout", 1), job.process("Train", 2)
    for step in range(8):
        job.put(rollout, step * 100 * MS + MS, range(8 * step, 8 * step + 8))
    for step in range(3, 11):
        job.get(train, step * 100 * MS + 50 * MS, range(8 * (step - 3), 8 * (step - 3) + 8))
    finding = findings_of(tmp_path, job)["stale_samples"]
    assert finding.title == "Train uses samples that are 2.2 steps old"
    assert finding.evidence[0].figure.startswith("mean, at most 3; longest in the queue: what Rollout 1 puts")
    assert finding.cost_s is None
    assert finding.risk == (
        "no time, but freshness: 75 % of what Train learns from was begun two or more of its steps before,"
        " by weights as old at best"
    )


@pytest.mark.parametrize("score_ms", [40, 2])
def test_waiting_follows_from_the_slow_stage(tmp_path: Path, score_ms: int) -> None:
    """A trainer that asks each 5 ms for what a scorer makes in 40 ms of a step of 60; and one whose scorer
    is fast, where what takes so long is in no record.
    """
    job = Job()
    train, scorer, maker = (job.process(name, number) for number, name in enumerate(("T", "S", "M"), 1))
    for step in range(30):
        at_ns = step * 60 * MS
        for process, name, work_ms in (
            (scorer, "score", score_ms),
            (maker, "make", 1),
            (train, "train", 1),
        ):
            times = {"total_ns": work_ms * MS, "get_ns": 0, "compute_ns": work_ms * MS, "put_ns": 0}
            job.call(process, name, at_ns, **times)
        for asked in range(9):
            job.wait(train, "train", at_ns + (5 + 5 * asked) * MS, 4 if asked == 8 else 0)
    finding = findings_of(tmp_path, job)["starvation"]
    slow = "score is the slow stage: 95.2 % of all functions' compute time"
    if score_ms == 40:
        (link,) = finding.links
        assert (link.finding.title, link.share) == (slow, pytest.approx(30 * 39 / (29 * 41), rel=0.01))
        assert link.is_cause and link.finding.name == "slow_stage"
    else:
        assert finding.links == ()


def test_the_producer_that_batches_wait_for(tmp_path: Path) -> None:
    job = Job()
    fast, slow, train = job.process("Fast", 1), job.process("Slow", 2), job.process("Train", 3)
    for step in range(20):
        at_ns = step * 200 * MS
        job.put(fast, at_ns, range(16))
        job.put(slow, at_ns + 60 * MS, range(16, 32))
        job.get(train, at_ns + 100 * MS, range(32))
    finding = findings_of(tmp_path, job)["slow_producer"]
    assert (finding.title, finding.cost_s) == ("Slow 2 holds up the batches", pytest.approx(20 * 0.06))
