"""A run file folded into its report: figures by hand, long runs thinned, strange files survived."""

from __future__ import annotations

import importlib
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.cli.report import FORMATS
from flagscale_perf.spine.files import open_locked
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import RUNNING, Record, RunEnd
from flagscale_perf.store.run_file import Reading
from flagscale_perf.training.analysis.blocks import report_of
from flagscale_perf.training.analysis.fold import MAX_EVENTS, RunFold, read_report
from flagscale_perf.training.analysis.report import Node, TrainingReport
from flagscale_perf.training.analysis.tables import RankEntry
from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.records import IntervalRecord, StepRecord
from tests.fakes import (
    MS,
    SECOND,
    make_event,
    make_header,
    make_interval,
    make_phases,
    make_reading,
    make_step,
    sample_run,
)
from tests.run_files import left_behind
from tests.synthetic import node_record, ranks_record

NAME = "perf_records_20240129_103000.jsonl"


def folded(records: list[Record]) -> TrainingReport:
    fold = RunFold(make_header())
    for record in records:
        fold.add(record)
    return fold.report(Reading("here", {}, 0, []), RUNNING)


def test_the_trend_of_a_run() -> None:
    report = folded(sample_run())
    assert [
        tuple(point.figures[key] for key in ("first_iteration", "iteration", "steps"))
        for point in report.trend.points
    ] == [
        (1, 10, 9),
        (11, 20, 10),
        (21, 25, 2),
    ]
    point = report.trend.points[1].figures
    assert (point["timestamp"], point["elapsed_s"], point["tokens_per_s"], point["mfu"]) == (
        "2024-01-29 10:30:02",
        2.85,
        10240.0,
        0.05,
    )
    assert (point["memory_peak_gb"], point["power_w"], point["sm_clock_mhz"], point["throttle"]) == (
        3.0,
        640.0,
        1400,
        "power",
    )
    assert (report.trend.intervals, report.trend.slow_steps, point["forward_ms"]) == (3, [], None)


def test_phases_of_a_point_are_of_a_mean_step_and_add_up_to_groups() -> None:
    phases = {"forward": 200 * MS, "optimizer": 10 * MS, "optimizer_clip": 20 * MS, "between_steps": None}
    (point,) = folded([make_interval(10, phases_ns=phases, bubble_ns=50 * MS)]).trend.points
    names = ("forward_ms", "optimizer_ms", "optimizer_clip_ms", "between_steps_ms")
    assert [point.figures[name] for name in names] == [20.0, 1.0, 2.0, None]
    assert point.groups_ms == {
        "Data": None,
        "Forward": 20.0,
        "Backward": None,
        "Pipe": None,
        "Comm": None,
        "Optim": 3.0,
        "Other": None,
        "Between": None,
    }
    assert (point.figures["bubble_ms"], point.figures["imbalance_ms"]) == (5.0, None)


def test_slow_steps_are_kept_with_what_was_usual() -> None:
    steps = [make_step(n, iteration_ns=(300 if n in (20, 31) else 100) * MS) for n in range(1, 41)]
    trend = folded([*steps[:20], make_interval(20), *steps[20:], make_interval(30)]).trend
    assert [(slow.iteration, slow.iteration_ms, slow.usual_ms) for slow in trend.slow_steps] == [
        (20, 300.0, 100.0),
        (31, 300.0, 100.0),
    ]
    assert trend.slow_steps[0].elapsed_s == 2.3
    assert (trend.slow_step_count, trend.slow_excess_s) == (2, 0.4)
    assert [point.is_slow for point in trend.points] == [True, True]


def test_of_very_many_intervals_and_slow_steps_a_bounded_number_is_kept() -> None:
    def is_slow(n: int) -> bool:
        return n % 20 == 0

    records = [
        r
        for n in range(1, 5001)
        for r in (make_step(n, iteration_ns=(300 + n if is_slow(n) else 100) * MS), make_interval(n))
    ]
    trend = folded(records).trend
    assert len(trend.points) <= 2000 and trend.points[-1].iteration == 5000
    assert (trend.intervals, trend.slow_step_count, len(trend.slow_steps)) == (5000, 250, 100)
    assert [slow.iteration for slow in trend.slow_steps] == list(range(3020, 5001, 20))  # the longest


def test_ranks_side_by_side() -> None:
    work: list[int | None] = [900 * MS] * 7 + [None]
    records = [
        node_record(stages=[0] * 4 + [1] * 4),
        ranks_record(10),
        ranks_record(20, work_ns=work, silent=[7], silent_count=1),
    ]
    ranks = folded(records).ranks
    assert ranks is not None
    assert ranks.entries[4] == RankEntry(4, 4, "node0", "NVIDIA H200", 1)
    assert ranks.stretches == [[1, 10], [11, 20]]
    assert [row[0] for row in ranks.work_ms] == [950.0, 900.0]
    assert (ranks.median_work_ms[0], ranks.median_work_ms[7], ranks.peak_gb[7]) == (925.0, 950.0, 110.0)
    assert (ranks.silent, ranks.silent_count) == ([7], 1)


def test_the_ranks_of_a_node_may_be_told_one_after_the_other() -> None:
    first = node_record(ranks=[0], pids=[100], devices=["CPU"], stages=[0])
    rest = node_record(ranks=list(range(1, 8)), pids=[], devices=["NVIDIA H200"] * 7, stages=[1] * 6)
    report = folded([first, rest, ranks_record(10)])
    assert report.ranks is not None
    assert report.ranks.entries[:2] == [
        RankEntry(0, 0, "node0", "CPU", 0),
        RankEntry(1, 1, "node0", "NVIDIA H200", 1),
    ]
    assert report.ranks.entries[7] == RankEntry(7, 7, "node0", "NVIDIA H200", None)
    assert report.overview.nodes == [Node("node0", 8, 0, 7, ["CPU", "NVIDIA H200"])]


def test_ranks_that_share_an_entry_end_with_the_last_of_the_job() -> None:
    ranks = folded([ranks_record(10, ranks_per_entry=3, **dict.fromkeys(LISTS, [None] * 3))]).ranks
    assert ranks is not None
    assert [(entry.first_rank, entry.last_rank) for entry in ranks.entries] == [(0, 2), (3, 5), (6, 7)]


def test_after_a_restart_with_other_ranks_only_the_new_ones_are_shown() -> None:
    ranks = folded([ranks_record(10), ranks_record(20, **dict.fromkeys(LISTS, [MS] * 4))]).ranks
    assert ranks is not None
    assert (len(ranks.entries), ranks.stretches) == (4, [[11, 20]])


LISTS = ("iteration_ns", "work_ns", "wait_ns", "data_ns", "memory_peak_bytes")


def test_what_becomes_of_a_straggler_replaces_its_first_record() -> None:
    first = StragglerRecord(11, 20, False, [3], "n", "d", 0, "forward", 10 * MS, 110 * MS, "peers", None)
    over = replace(first, iteration=30, is_over=True, observed="clock capped by power")
    (straggler,) = folded([make_step(40), first, over]).stragglers
    assert (straggler.iteration, straggler.is_over, straggler.observed) == (
        30,
        True,
        "clock capped by power",
    )


@pytest.mark.parametrize(("is_live", "reason"), [(True, "running"), (False, "killed"), (None, "not known")])
def test_a_run_without_an_end(tmp_path: Path, is_live: bool | None, reason: str) -> None:
    path = tmp_path / NAME
    path.write_bytes(encode(make_header()) + encode(make_step(1)))
    if is_live is False:
        left_behind(path)
    held = open_locked(path) if is_live else None
    try:
        assert read_report(open_session(path)).overview.end_reason == reason
    finally:
        if held is not None:
            os.close(held)


def test_events_are_counted_and_the_first_of_each_name_kept() -> None:
    monitor = folded([*[make_event("drop")] * 60, make_event("rank", at_ns=2 * SECOND, text="slow")]).monitor
    assert (monitor.event_counts, len(monitor.events)) == ({"drop": 60, "rank": 1}, 51)
    assert monitor.events[-1].at == "2024-01-29 10:30:02"


@pytest.mark.parametrize("name", FORMATS)
def test_facts_of_other_types_than_ours_are_shown_or_left_out(tmp_path: Path, name: str) -> None:
    header = make_header()
    for strange in ("eight", [1], {"a": 1}, -5, 1.5, True, None):
        facts: dict[str, Any] = dict.fromkeys(header.facts, strange)
        path = tmp_path / NAME
        path.write_bytes(
            b"".join(
                map(
                    encode,
                    [replace(header, facts=facts, config={"perf_log_interval": strange}), *sample_run()[1:]],
                )
            )
        )
        if name != "png" or strange == "eight":  # once is enough: it takes a second
            assert importlib.import_module(f"flagscale_perf.report.{name}").render(
                report_of(read_report(open_session(path)))
            )


def test_whatever_numbers_are_in_a_file_it_makes_a_report() -> None:
    chance = random.Random(11)
    limits = (0, 1, -1, 10**9, -(10**9), 2**62, -(2**62))

    def strange(record: Record) -> Record:
        fields = record._asdict() if isinstance(record, tuple) else dict(vars(record))
        wild = {
            key: chance.choice(limits) if type(value) is int and key not in ("outcome", "warmup") else value
            for key, value in fields.items()
        }
        return type(record)(**wild)  # type: ignore[arg-type]

    originals = [
        make_step(1),
        make_interval(10, phases_ns={"forward": 5}),
        make_phases(1),
        make_reading(1),
        make_event("x"),
        RunEnd("x", 1, 1, 0),
    ]
    for _ in range(200):
        records = [strange(chance.choice(originals)) for _ in range(40)]
        report = folded(records)
        assert (
            json.loads(importlib.import_module("flagscale_perf.report.json").render(report_of(report)))[
                "report_version"
            ]
            == 1
        )
        for name in ("text", "markdown", "csv"):
            assert importlib.import_module(f"flagscale_perf.report.{name}").render(report_of(report))


def test_it_takes_records_as_they_come() -> None:
    fold = RunFold(make_header())
    seen = []
    for record in sample_run():
        fold.add(record)
        if isinstance(record, StepRecord | IntervalRecord):
            seen.append(fold.report(Reading("here", {}, 0, []), RUNNING).overview.iterations)
    assert (seen[0], seen[-1], seen == sorted(seen)) == (1, 25, True)


def test_names_of_events_beyond_the_first_ones_are_counted_together(tmp_path: Path) -> None:
    path = tmp_path / "perf_records_20240129_103000.jsonl"
    names = [f"name {number}" for number in range(MAX_EVENTS + 10)]
    path.write_bytes(
        b"".join(map(encode, [make_header(), *(make_event(name) for name in [*names, names[0]])]))
    )
    monitor = read_report(open_session(path)).monitor
    assert monitor.event_counts == {names[0]: 2} | dict.fromkeys(names[1:MAX_EVENTS], 1) | {"other": 10}
    assert [event.name for event in monitor.events] == [*names[:MAX_EVENTS], names[0]]


def test_a_mean_of_few_intervals_says_so_and_gives_no_advice() -> None:
    """Four of six intervals above the peak."""
    records = [make_step(1, warmup=1)]
    for number in range(6):
        flops = (100 if number < 4 else 4) * 10**12
        first = 10 * number + 2
        records += [make_step(n, model_flops=flops) for n in range(first, first + 10)]
        records.append(make_interval(first + 9, model_flops=10 * flops))
    report = folded(records)
    assert (report.figures.mfu, report.figures.suspect_intervals, report.figures.intervals) == (0.05, 4, 6)
    assert [one.title for one in report.findings if "Intervals above" in one.title] == [
        "Intervals above the peak: 4 of 6. The peak, the data type or the count of FLOPs is wrong"
    ]
    assert "small_micro_batch" not in {one.name for one in report.findings}
