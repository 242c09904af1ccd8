"""Each trouble planted, and named."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.report.findings import changes, rows
from flagscale_perf.trace.analysis.instrument import read_report
from flagscale_perf.trace.analysis.report import TraceReport
from tests.trace_runs import MIB, MS, US, Job, lines_of_call, pipeline


def findings_of(directory: Path, job: Job) -> dict[str, Finding]:
    return {finding.name: finding for finding in _report(directory, job).findings}


def _report(directory: Path, job: Job) -> TraceReport:
    return read_report(open_session(job.write(directory)))


def _puts(count: int, **changed) -> Job:
    """Puts one after another, each in a call of 10 ms."""
    job = Job()
    worker = job.process("W", 1)
    for number in range(count):
        made = {name: value(number) if callable(value) else value for name, value in changed.items()}
        job.put(worker, number * 20 * MS, range(64), call=job.coming(worker, 1), **made)
        job.call(worker, "rollout", number * 20 * MS, total_ns=100 * MS, get_ns=0, compute_ns=96 * MS)
    return job


def _all_work(took_ns: int) -> dict[str, int]:
    return {"total_ns": took_ns, "get_ns": 0, "compute_ns": took_ns, "put_ns": 0}


def test_nothing_is_found_where_nothing_is_wrong(tmp_path: Path) -> None:
    assert [name for name in findings_of(tmp_path, pipeline(40)) if name != "slow_stage"] == []


def test_the_slow_stage_is_named_first(tmp_path: Path) -> None:
    found = _report(tmp_path, pipeline(40)).findings
    assert found[0].title == "train is the slow stage: 79.7 % of all functions' compute time"
    assert found[0].cost_s == pytest.approx(40 * (0.094 - 0.024))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_what_is_gained_is_of_the_wall_time_however_many_processes_work(tmp_path: Path, workers: int) -> None:
    """Steps of reward, in all workers at once, and then train; the truth is the run with an equal reward."""

    def report(reward_ns: int, where: str) -> TraceReport:
        job = Job()
        train, *others = (job.process(f"P{number}", number) for number in range(1 + workers))
        for step in range(20):
            at_ns = step * (reward_ns + 30 * MS)
            for each in others:
                job.call(each, "reward", at_ns, **_all_work(reward_ns))
            job.call(train, "train", at_ns + reward_ns, **_all_work(30 * MS))
        (tmp_path / where).mkdir()
        return _report(tmp_path / where, job)

    slow, equal = report(90 * MS, "slow"), report(30 * MS, "equal")
    (finding,) = (each for each in slow.findings if each.name == "slow_stage")
    assert slow.wall_ns is not None and equal.wall_ns is not None
    assert finding.gain == pytest.approx(slow.wall_ns / equal.wall_ns - 1, rel=0.01)


def test_a_function_that_mostly_waits_for_the_queue(tmp_path: Path) -> None:
    job = Job()
    worker = job.process("W", 1)
    for number in range(10):
        at_ns = number * 10 * MS
        job.call(worker, "reward", at_ns, total_ns=10 * MS, get_ns=3 * MS, compute_ns=6 * MS, put_ns=MS)
    finding = findings_of(tmp_path, job)["queue_overhead"]
    assert finding.title == "reward spends 40.0 % of its time in the queue"
    assert (finding.cost_s, finding.gain) == (0.04, pytest.approx(4 / 6))
    assert finding.evidence[0].figure == "reward, 10 calls: get 30.0 %, put 10.0 %"


@pytest.mark.parametrize(
    ("rows", "fields", "size", "bound", "words"),
    [
        (1024, 4, MIB, "cells", "2 fields instead of 4"),
        (16, 4, MIB // 16, "fixed cost", "32 rows instead of 16"),
        (16, 1, 16 * MIB, "bytes", "half the bytes"),
    ],
)
def test_the_bound_and_what_its_change_gains(tmp_path: Path, rows, fields, size, bound, words) -> None:
    """Most gets have one shape; others are there, so that the model can be fitted. Noise of 10 %."""
    source, job = random.Random(1), Job()
    worker = job.process("W", 1)

    def takes(rows: int, fields: int, size: int) -> float:
        return 1.84 * MS + 12.7 * US * rows * fields + 0.54 * MS * size / MIB

    shapes = [(rows, fields, size)] * 400
    shapes += [(16, 1, 65536), (1024, 1, 65536), (64, 12, MIB), (256, 4, 8 * MIB), (16, 4, MIB)] * 4
    for number, (count, wide, much) in enumerate(shapes):
        took = round(takes(count, wide, much) * source.lognormvariate(0, 0.1))
        job.get(worker, number * 100 * MS, range(count), fields=wide, size_bytes=much, total_ns=took)
    finding = findings_of(tmp_path, job)["bound"]
    assert finding.title.startswith(f"Most of a get goes into its {bound}: with {words}")

    def saved(rows: int, fields: int, size: int) -> float:
        after = {
            "cells": takes(rows, fields, size) - 12.7 * US * rows * fields / 2,
            "bytes": takes(rows, fields, size // 2),
            "fixed cost": takes(2 * rows, fields, 2 * size) / 2,
        }[bound]
        return takes(rows, fields, size) - after

    assert finding.cost_s == pytest.approx(sum(saved(*shape) for shape in shapes) / 1e9, rel=0.2)


@pytest.mark.parametrize("others_last", [6, 1000])  # every so many-th put waits for the other one; none does
def test_the_slow_storage_unit_is_named(tmp_path: Path, others_last: int) -> None:
    def waits(number: int) -> dict[str, int]:
        return {"unit0": 2 * MS, "unit1": MS if number % others_last == others_last - 1 else 60 * MS}

    job = _puts(60, waits=waits, total_ns=lambda number: 2 * MS + max(waits(number).values()))
    finding = findings_of(tmp_path, job)["straggling_unit"]
    assert finding.title == "Storage unit unit1 holds up the puts"
    assert finding.cost_s == pytest.approx((60 - 60 // others_last) * 0.058)
    assert finding.evidence[0].value == 30


@pytest.mark.parametrize(("late", "in_turn"), [(0, 2), (2, 1)])
def test_what_waits_for_a_unit_in_turn_adds_up(tmp_path: Path, late: int, in_turn: int) -> None:
    """A driver and then two generators at once put, each held up for 58 ms; a step trains on its own samples,
    or on those of two steps before, when the driver puts while the generators do.
    """
    job, slow = Job(), {"waits": {"unit0": 2 * MS, "unit1": 60 * MS}, "total_ns": 62 * MS}
    driver, train = job.process("Driver", 1), job.process("Train", 2)
    generators = [job.process("Generate", 3), job.process("Generate", 4)]
    for step in range(30):
        at_ns, rows = step * 400 * MS, range(8 * step, 8 * step + 8)
        job.put(driver, at_ns, rows, **slow)
        for number, generator in enumerate(generators):
            job.put(generator, at_ns + 100 * MS, rows[4 * number : 4 * number + 4], **slow)
        if step >= late:
            job.get(train, at_ns + 300 * MS, range(8 * (step - late), 8 * (step - late) + 8))
    assert findings_of(tmp_path, job)["straggling_unit"].cost_s == pytest.approx(30 * in_turn * 0.058)


def explained(finding: Finding) -> list[tuple[str, float | None, bool]]:
    return [(link.finding.title, link.share, link.is_cause) for link in finding.links]


def slow_unit(slow_ns: int) -> Job:
    """Calls of 20 ms: gets from two units, of which one takes so long; 4 ms of computing, 2 of putting."""
    job = Job()
    worker = job.process("W", 1)
    for number in range(60):
        at_ns, call = number * 30 * MS, job.coming(worker, 1)
        rows = (16, 32, 64)[number % 3]  # so that the cost model can be fitted
        waits = {"unit0": 2 * MS, "unit1": slow_ns}
        took = {"total_ns": slow_ns + MS, "unit_ns": slow_ns, "decode_ns": None, "pack_ns": None}
        job.get(
            worker, at_ns, range(rows), waits=waits, size_bytes=1024 * (1 + number % 5), call=call, **took
        )
        get_ns = slow_ns + 2 * MS
        times = {"get_ns": get_ns, "compute_ns": 4 * MS, "put_ns": 0, "total_ns": get_ns + 4 * MS}
        job.call(worker, "reward", at_ns, **times)
    return job


def test_what_a_slow_unit_explains_follows_from_it(tmp_path: Path) -> None:
    """Of 16 ms in the queue the unit takes 12 more than the other, so that advice remains; of 42 ms 38."""
    unit = "Storage unit unit1 holds up the gets"
    part, most = findings_of(tmp_path, slow_unit(14 * MS)), findings_of(tmp_path, slow_unit(40 * MS))
    assert explained(part["queue_overhead"]) == [(unit, pytest.approx(12 / 16), False)]
    assert changes(part["queue_overhead"]) == part["queue_overhead"].changes
    assert explained(most["queue_overhead"]) == [(unit, pytest.approx(38 / 42), True)]
    assert most["queue_overhead"].overlaps == ["straggling_unit"]
    for name in ("queue_overhead", "bound"):
        assert changes(most[name]) == most["straggling_unit"].changes
    assert [title for title, *_ in explained(most["bound"])] == [unit]
    assert most["bound"].as_dict()["explained_by"][0]["title"] == unit
    assert ("explained by", f"{unit} (90.5 % of it)") in rows(most["queue_overhead"])
    assert most["straggling_unit"].links == ()


def test_a_queue_that_is_slow_by_itself_follows_from_nothing(tmp_path: Path) -> None:
    found = findings_of(tmp_path, slow_unit(2 * MS))
    assert "straggling_unit" not in found
    assert all(finding.links == () for finding in found.values())


def test_units_that_take_turns_are_none(tmp_path: Path) -> None:
    job = _puts(60, waits=lambda number: {f"unit{number % 2}": 60 * MS, f"unit{1 - number % 2}": 2 * MS})
    assert "straggling_unit" not in findings_of(tmp_path, job)


def test_times_that_fluctuate(tmp_path: Path) -> None:
    job = _puts(40, total_ns=lambda number: 40 * MS if number % 5 == 0 else 4 * MS)
    finding = findings_of(tmp_path, job)["fluctuation"]
    assert finding.title == "The time of a put fluctuates"
    assert finding.evidence[0].value == 10


def test_throughput_that_is_low_for_long(tmp_path: Path) -> None:
    finding = findings_of(tmp_path, _puts(40, total_ns=20 * MS))["low_throughput"]
    assert finding.title == "Throughput of puts is low for long"
    assert finding.evidence[0].figure == (
        "puts below 100 MiB/s, p50 50 MiB/s; whether bytes are the bound is not known"
    )


def test_a_healthy_run_of_small_batches_and_rare_calls_has_no_finding(tmp_path: Path) -> None:
    """128 bytes in 4 ms; two calls work long; and one function of 0.1 % of the time is all queue."""
    job = Job()
    train, load = job.process("Train", 1), job.process("Load", 2)
    for number in range(40):
        at_ns = number * 100 * MS
        job.put(load, at_ns, range(64), size_bytes=128)
        for process, name in ((train, "train"), (load, "score")):
            job.call(process, name, at_ns, total_ns=50 * MS, get_ns=2 * MS, compute_ns=46 * MS, put_ns=2 * MS)
        if number < 2:
            job.call(load, "load", at_ns, total_ns=900 * MS, get_ns=2 * MS, compute_ns=890 * MS, put_ns=0)
        tiny = {"total_ns": 50 * US, "get_ns": 40 * US, "compute_ns": 10 * US, "put_ns": 0}
        job.call(load, "note", at_ns, **tiny)
    assert findings_of(tmp_path, job) == {}


def test_what_failed_is_named(tmp_path: Path) -> None:
    job = _puts(2)
    job.put(1, 0, range(8), error="TimeoutError")
    finding = findings_of(tmp_path, job)["errors"]
    assert (finding.title, finding.evidence[0].figure) == (
        "1 calls and operations failed",
        "put: TimeoutError 1",
    )


def test_missing_lines_are_a_finding(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("\n".join([*lines_of_call(), lines_of_call()[-1] + " [repeated 75x across cluster]"]))
    assert [finding.title for finding in read_report(open_session(log)).findings] == [
        "74 lines or records are missing"
    ]


def test_cost_and_gain_are_of_one_time(tmp_path: Path) -> None:
    """A call of 10 ms a step, of which 4 ms are the queue's, in each of two processes, in 20 ms a step."""
    job = Job()
    for number in range(2):
        process = job.process(f"P{number}", number + 1)
        for step in range(20):
            job.call(
                process,
                "reward",
                step * 20 * MS,
                total_ns=10 * MS,
                get_ns=3 * MS,
                compute_ns=6 * MS,
                put_ns=MS,
            )
    found = _report(tmp_path, job)
    finding = next(each for each in found.findings if each.name == "queue_overhead")
    share = 20 * 4 / 390
    assert (finding.cost_s, finding.cost_share) == (pytest.approx(0.08), pytest.approx(share))
    assert finding.gain == pytest.approx(share / (1 - share))
