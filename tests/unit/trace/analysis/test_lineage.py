"""Samples joined to the puts that made them, against what was planted."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.session import Session
from flagscale_perf.trace.analysis.lineage import Lineage, join
from flagscale_perf.trace.analysis.source import read_traces
from tests.trace_runs import MS, US, Job, make_trace_header, pipeline

READY = 2700 * US  # of a put, when others may have its samples


def _lineage(directory: Path, job: Job) -> Lineage:
    traces = read_traces(open_session(job.write(directory)))
    assert traces.transfers is not None
    return join(traces.transfers)


def test_each_life_of_an_index_is_joined_to_its_own_put(tmp_path: Path) -> None:
    found = _lineage(tmp_path, pipeline(steps=10, rows=64))
    assert (found.consumed, found.joined, found.unknown, found.negative) == (640, 640, 0, 0)
    assert found.last.name == "train"
    assert list(found.flows) == [("rollout", "train")]
    flow = found.flows["rollout", "train"]
    assert (flow.samples, flow.residence.percentile(0), flow.residence.high) == (640, 23.3 * MS, 23.3 * MS)
    assert (found.last.age, found.last.by_step[0], len(found.last.by_step)) == (
        Counter({0: 640}),
        (1, 0.0, 0),
        10,
    )


@pytest.mark.parametrize("delay", [1, 3])
def test_staleness_is_the_planted_one(tmp_path: Path, delay: int) -> None:
    """Step n trains on what was rolled out before step n - delay began; 4 slots of indexes in turn."""
    job = Job()
    rollout, train = job.process("Rollout", 1), job.process("Train", 2)
    events = []
    for step in range(12):
        rows = range(100 * (step % 8), 100 * (step % 8) + 16)
        events.append((step * 100 * MS + 10 * MS, rollout, rows))
        events.append(((step + delay) * 100 * MS + 30 * MS, train, rows))
    for at_ns, process, rows in sorted(events, key=lambda event: event[0]):
        call = job.coming(process, 1)
        if process == rollout:
            job.put(rollout, at_ns, rows, call=call)
            job.call(rollout, "rollout", at_ns - 5 * MS, total_ns=10 * MS)
        else:
            job.get(train, at_ns + MS, rows, call=call)
            job.call(train, "train", at_ns, total_ns=60 * MS)
    found = _lineage(tmp_path, job)
    assert (found.joined_share, found.unknown) == (1.0, 0)
    # the first steps find fewer steps done: before step n there are n of them, `delay` of which came after
    expected = Counter({delay: 16 * (12 - delay)}) if delay == 1 else None
    ages = [round(mean) for _, mean, _ in found.last.by_step]
    assert ages == [min(step, delay) for step in range(12)]
    assert expected is None or found.last.age == Counter({1: 16 * 11, 0: 16})


def test_a_step_that_the_batch_names_comes_first(tmp_path: Path) -> None:
    job = Job()
    rollout, train = job.process("Rollout", 1), job.process("Train", 2)
    job.put(rollout, 0, range(8), step=5)
    job.get(train, 50 * MS, range(8), step=9)
    found = _lineage(tmp_path, job)
    assert (found.last.age, found.last.by_step) == (Counter({4: 8}), [(9, 4.0, 4)])


def test_random_jobs_against_ground_truth(tmp_path: Path) -> None:
    """Several producers and consumers, shuffled indexes that are used again after they were consumed."""
    source = random.Random(7)
    for attempt in range(5):
        job, free = Job(), list(range(600))
        producers = [job.process(f"P{n}", 10 + n) for n in range(3)]
        consumers = [job.process(f"C{n}", 20 + n) for n in range(2)]
        truth, ready, at_ns = [], [], 0
        for _ in range(120):
            at_ns += 10 * MS
            if len(free) > 20 and source.random() < 0.6:
                rows = sorted(source.sample(free, 10))
                who = source.choice(producers)
                job.put(who, at_ns, rows)
                free = [row for row in free if row not in rows]
                ready += [(row, at_ns + READY, who) for row in rows]
            elif ready:
                source.shuffle(ready)
                taken, ready = ready[:12], ready[12:]
                job.get(source.choice(consumers), at_ns, sorted(row for row, *_ in taken))
                truth += [at_ns - done_ns for _, done_ns, _ in taken]
                free += [row for row, *_ in taken]
        where = tmp_path / str(attempt)
        where.mkdir()
        found = _lineage(where, job)
        assert found.consumed == found.joined == len(truth)
        assert found.residence.total == sum(truth)
        assert found.residence.high == max(truth)


def test_every_function_that_added_to_a_sample_is_a_flow_and_the_last_one_made_it(tmp_path: Path) -> None:
    job = Job()
    load, rollout, reward, train = (job.process(name, n) for n, name in enumerate(("L", "R", "W", "T"), 1))
    for step in range(3):
        at_ns, rows = step * 200 * MS, range(32)
        job.put(load, at_ns, rows)
        job.get(rollout, at_ns + 10 * MS, rows)
        job.put(rollout, at_ns + 20 * MS, rows[:16])
        job.put(rollout, at_ns + 30 * MS, rows[16:])
        job.get(reward, at_ns + 40 * MS, rows)
        job.put(reward, at_ns + 50 * MS, rows)
        job.get(train, at_ns + 80 * MS, rows)
    found = _lineage(tmp_path, job)
    assert found.last.name == "T"
    assert {pair: flow.samples for pair, flow in found.flows.items()} == {
        ("L 1", "R 2"): 96,
        ("R 2", "W 3"): 96,
        ("L 1", "W 3"): 96,
        ("W 3", "T 4"): 96,
        ("R 2", "T 4"): 96,
        ("L 1", "T 4"): 96,
    }
    assert found.flows["L 1", "T 4"].residence.high == 80 * MS - READY
    assert (found.puts_per_get.high, found.last.depth[0], found.last.depth[1]) == (
        2,
        (READY, 32),
        (80 * MS, -32),
    )


def test_each_field_is_joined_to_the_put_that_wrote_it_and_a_sample_to_the_one_that_created_it(
    tmp_path: Path,
) -> None:
    """Who wrote what is random, and so is what is got; notes and scores come after most of the gets."""
    source = random.Random(11)
    job = Job()
    creators = [job.process(f"C{n}", n) for n in range(2)]
    writers = [job.process(f"W{n}", 10 + n) for n in range(3)]
    readers = [job.process(f"R{n}", 20 + n) for n in range(2)]
    titles = {record.number: f"{record.title} {record.pid}" for record in job.records}
    wrote: dict[tuple[int, str], int] = {}
    truth: Counter[tuple[str, str]] = Counter()
    for at in range(200):
        at_ns, rows = at * 20 * MS, sorted(source.sample(range(at // 4 + 1), min(8, at // 4 + 1)))
        if not at % 4:  # a new sample, which is there from then on
            who, names, rows = source.choice(creators), ["prompt", "uid"], [at // 4]
            job.put(who, at_ns, rows, names=names)
        elif source.random() < 0.5:
            who = source.choice(writers)
            names = source.choice([["response"], ["score", "note"], ["note"]])
            job.put(who, at_ns, rows, names=names)
        else:
            who, names = source.choice(readers), source.choice([["prompt", "response"], ["score"], ["uid"]])
            if rows := [row for row in rows if all((row, name) in wrote for name in names)]:
                job.get(who, at_ns, rows, names=names)
            for row in rows:
                truth.update((titles[by], titles[who]) for by in {wrote[row, name] for name in names})
            continue
        wrote |= {(row, name): who for row in rows for name in names}
    job.clear(creators[0], 200 * 20 * MS, None)  # so that no put is taken for another life
    found = _lineage(tmp_path, job)
    assert {pair: flow.samples for pair, flow in found.flows.items()} == truth
    assert (found.made, found.negative) == (50, 0)


def test_a_put_of_other_fields_begins_no_new_life(tmp_path: Path) -> None:
    """The driver puts prompts and, after they were trained on, notes: nothing was cleared so far."""
    job = Job()
    driver, train = job.process("Driver", 1), job.process("Train", 2)
    for step in range(3):
        at_ns = step * 200 * MS
        job.put(driver, at_ns, range(8), names=["prompt"])
        job.get(train, at_ns + 20 * MS, range(8), names=["prompt"])
        job.put(driver, at_ns + 40 * MS, range(8), names=["note"])
    found = _lineage(tmp_path, job)
    assert (found.made, found.joined, found.left) == (24, 24, 0)
    assert found.residence.high == 20 * MS - READY


def test_who_comes_last_is_who_the_batch_waited_for(tmp_path: Path) -> None:
    job = Job()
    fast, slow, train = job.process("Fast", 1), job.process("Slow", 2), job.process("Train", 3)
    for step in range(5):
        at_ns = step * 200 * MS
        job.put(fast, at_ns, range(16))
        job.put(slow, at_ns + 60 * MS, range(16, 32))
        job.get(train, at_ns + 100 * MS, range(32))
    found = _lineage(tmp_path, job)
    assert {name: (one.batches, one.last, one.held.mean) for name, one in found.holders.items()} == {
        "Fast 1": (5, 0, None),
        "Slow 2": (5, 5, 60 * MS),
    }
    assert found.processes_per_get.mean == 2


def test_got_before_the_put_was_done_is_joined_and_reported(tmp_path: Path) -> None:
    job = Job()
    put, get = job.process("P", 1), job.process("C", 2)
    job.get(get, 0, range(8))
    job.put(put, MS, range(8))
    found = _lineage(tmp_path, job)
    assert (found.joined, found.negative, found.worst_ns) == (8, 8, -(MS + READY))


def test_a_get_whose_put_is_in_no_file_does_not_join_a_later_one(tmp_path: Path) -> None:
    job = Job()
    put, get = job.process("P", 1), job.process("C", 2)
    job.get(get, 0, range(8))
    job.put(put, 500 * MS, range(8))
    job.get(get, 600 * MS, range(4))
    found = _lineage(tmp_path, job)
    assert (found.consumed, found.joined, found.negative) == (12, 4, 0)


def _together(paths: list[Path]) -> Session:
    files = {file.path: file for path in paths for file in open_session(path).files}
    return Session([*files.values()])


@pytest.mark.parametrize(("ahead_ms", "joined"), [(500, 8), (5000, 0)])
def test_clocks_of_two_machines_may_differ_by_so_much(tmp_path: Path, ahead_ms: int, joined: int) -> None:
    one, two = Job(), Job()
    one.put(one.process("P", 1), ahead_ms * MS, range(8))
    two.get(two.process("C", 2), 0, range(8))
    header = make_trace_header("20240129_103001", host="node1", boot_id="other")
    traces = read_traces(_together([one.write(tmp_path), two.write(tmp_path, header)]))
    assert traces.transfers is not None
    assert join(traces.transfers).joined == joined


def test_samples_of_unknown_indexes_are_counted_apart(tmp_path: Path) -> None:
    job = Job()
    put, get = job.process("P", 1), job.process("C", 2)
    job.put(put, 0, range(8))
    job.get(get, 50 * MS, range(8), rows=5)  # five of eight, and no record of which
    job.get(get, 60 * MS, range(100, 104))  # nobody put these
    found = _lineage(tmp_path, job)
    assert (found.consumed, found.joined, found.unknown) == (4, 0, 5)


def test_a_huge_index_takes_no_memory_for_those_below_it(tmp_path: Path) -> None:
    job = Job()
    put, get = job.process("P", 1), job.process("C", 2)
    rows = range(1 << 60, (1 << 60) + 8)
    job.put(put, 0, rows)
    job.get(get, 50 * MS, rows)
    assert _lineage(tmp_path, job).joined == 8


def test_machines_of_a_job_are_joined_by_the_time_of_day(tmp_path: Path) -> None:
    one, two = Job(), Job()
    put, get = one.process("P", 1), two.process("C", 2)
    one.put(put, 0, range(8))
    two.get(get, 1050 * MS, range(8))
    path = one.write(tmp_path)
    header = make_trace_header("20240129_103001", host="node1", boot_id="other", start_mono_ns=1000 * MS)
    other = two.write(tmp_path, header)
    for given in ([path], [path, path], [other, path]):  # no file is read twice
        traces = read_traces(_together(given))
        assert traces.transfers is not None
        found = join(traces.transfers)
        assert (found.joined, found.residence.high) == (8, 50 * MS - READY)
        assert sorted({transfer.process for transfer in traces.transfers.transfers}) == [
            "C 2@node1",
            "P 1@node0",
        ]


def test_containers_of_one_machine_have_one_clock_and_are_told_apart(tmp_path: Path) -> None:
    """Its time of day was set an hour ahead between their starts."""
    one, two = Job(), Job()
    one.put(one.process("P", 1), 0, range(8))
    two.get(two.process("P", 1), 50 * MS, range(8))
    path = one.write(tmp_path)
    header = make_trace_header("20240129_113000", start_mono_ns=10 * MS)
    other = two.write(tmp_path, replace(header, start_wall_ns=header.start_wall_ns + 3_600_000 * MS))
    traces = read_traces(_together([path, other]))
    assert traces.transfers is not None
    assert join(traces.transfers).joined == 8
    assert sorted({transfer.process for transfer in traces.transfers.transfers}) == [
        "P 1@node0",
        "P 1@node0/20240129_113000",
    ]


@pytest.mark.parametrize("ranges", [None, (0, 8)])
def test_a_clear_ends_a_life_and_nothing_else_does(tmp_path: Path, ranges: tuple[int, ...] | None) -> None:
    """The driver puts prompts and, later, more fields of the same samples; train gets them twice."""
    job = Job()
    driver, train = job.process("Driver", 1), job.process("Train", 2)
    for step in range(3):
        at_ns = step * 200 * MS
        job.put(driver, at_ns, range(8))
        job.get(train, at_ns + 20 * MS, range(8))
        job.put(driver, at_ns + 40 * MS, range(8))
        job.get(train, at_ns + 60 * MS, range(8))
        job.clear(driver, at_ns + 80 * MS, ranges)
    found = _lineage(tmp_path, job)
    assert (found.made, found.consumed, found.joined, found.cleared, found.left) == (24, 48, 48, 0, 0)
    assert found.flows["Driver 1", "Train 2"].samples == 24 + 48  # of the second get both puts are known
    assert found.last.depth == [
        (change, samples)
        for step in range(3)
        for change, samples in ((step * 200 * MS + READY, 8), (step * 200 * MS + 20 * MS, -8))
    ]


def test_what_nobody_trained_on_is_counted(tmp_path: Path) -> None:
    """Of four batches train has the first two; the third is cleared, the fourth left."""
    job = Job()
    rollout, reward, train = (
        job.process(name, n) for n, name in enumerate(("Rollout", "Reward", "Train"), 1)
    )
    for step in range(4):
        at_ns, rows = step * 100 * MS, range(8 * step, 8 * step + 8)
        job.put(rollout, at_ns, rows)
        job.get(reward, at_ns + 10 * MS, rows)
        job.put(reward, at_ns + 20 * MS, rows)
        if step < 2:
            job.get(train, at_ns + 40 * MS, rows)
        if step < 3:
            job.clear(rollout, at_ns + 60 * MS, (rows[0], 8))
    found = _lineage(tmp_path, job)
    assert (found.last.name, found.made, found.cleared, found.left) == ("Train", 32, 8, 8)
    assert found.last.depth[-2:] == [(260 * MS, -8), (300 * MS + READY, 8)]
    assert found.as_dict()["never_consumed"] == {"cleared": 8, "left": 8}


@pytest.mark.parametrize("vague", [{"error": 1}, {"is_cut": 1}])
def test_where_not_all_that_is_cleared_is_known_puts_and_gets_say_it(
    tmp_path: Path, vague: dict[str, int]
) -> None:
    job = Job()
    rollout, train = job.process("Rollout", 1), job.process("Train", 2)
    for step in range(3):
        job.put(rollout, step * 100 * MS, range(8))
        job.get(train, step * 100 * MS + 20 * MS, range(8))
        job.clear(rollout, step * 100 * MS + 40 * MS, (0, 4), **vague)
    found = _lineage(tmp_path, job)
    assert (found.made, found.joined, found.flows["Rollout 1", "Train 2"].samples) == (24, 24, 24)
