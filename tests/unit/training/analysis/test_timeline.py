"""The trace, loaded again: every span in its place, in microseconds from the start of the session."""

from __future__ import annotations

import json
from collections import defaultdict
from types import SimpleNamespace
from typing import Any, cast

from flagscale_perf.analysis.session import Session
from flagscale_perf.report.trace import trace_lines
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.training.analysis.timeline import PHASES_OF_STEPS, RANK_0, RANKS, STEPS, timeline
from flagscale_perf.training.rank_records import RanksRecord, StragglerRecord
from flagscale_perf.training.records import Record
from tests.fakes import (
    MS,
    make_event,
    make_facts,
    make_header,
    make_interval,
    make_phases,
    make_reading,
    make_skipped_data,
    make_step,
    sample_run,
)


def session_of(header: RunHeader) -> Session:
    """Of which a timeline of a training needs the header alone."""
    return cast(Session, SimpleNamespace(header=header))


def events_of(*records: Record, header: RunHeader | None = None) -> list[dict[str, Any]]:
    header = header or make_header()
    trace = json.loads("".join(trace_lines(header, timeline(session_of(header)).items(records))))
    assert trace["displayTimeUnit"] == "ms"
    return trace["traceEvents"]


def spans_of(events: list[dict[str, Any]], process: int, thread: int) -> list[tuple[str, float, float]]:
    """Name, start and length, in milliseconds."""
    return [
        (e["name"], e["ts"] / 1000, e["dur"] / 1000)
        for e in events
        if (e["ph"], e["pid"], e["tid"]) == ("X", process, thread)
    ]


def nests(events: list[dict[str, Any]]) -> bool:
    """Spans of one thread are beside each other or one inside the other."""
    threads = defaultdict(list)
    for event in events:
        if event["ph"] == "X":  # in whole nanoseconds, as Perfetto keeps them
            start_ns = round(event["ts"] * 1000)
            threads[event["pid"], event["tid"]].append((start_ns, -round(event["dur"] * 1000)))
    for spans in threads.values():
        open_until: list[int] = []
        for start_ns, minus_dur_ns in sorted(spans):
            while open_until and open_until[-1] <= start_ns:
                open_until.pop()
            if open_until and start_ns - minus_dur_ns > open_until[-1]:
                return False
            open_until.append(start_ns - minus_dur_ns)
    return True


def make_straggler(**overrides: Any) -> StragglerRecord:
    fields: dict[str, Any] = {
        "first_iteration": 1,
        "iteration": 1,
        "is_over": False,
        "ranks": [3],
        "hostname": "node0",
        "device": "H200",
        "stage": 0,
        "phase": "forward",
        "excess_ns": 20 * MS,
        "iteration_ns": 100 * MS,
        "against": "peers",
        "cause": None,
    }
    return StragglerRecord(**fields | overrides)


def test_an_iteration_with_its_pauses() -> None:
    events = events_of(make_step(1, eval_ns=30 * MS, checkpoint_ns=20 * MS), make_skipped_data(5, 4))
    assert spans_of(events, RANK_0, STEPS) == [
        ("iteration 1", 100, 150),
        ("train step", 100, 90),
        ("evaluation", 200, 30),
        ("checkpoint", 230, 20),
        ("iteration 5", 500, 4),
    ]
    assert [e["args"] for e in events if e["name"] == "iteration 5"] == [
        {"outcome": "data_skipped", "samples": 0, "tokens": 0}
    ]


def test_phases_stand_end_to_end_in_their_iteration() -> None:
    events = events_of(make_phases(1), make_step(1))
    assert spans_of(events, RANK_0, PHASES_OF_STEPS) == [
        ("data_loading", 100, 2),
        ("forward", 102, 18),
        ("backward", 120, 36),
        ("pipeline_recv_wait", 156, 15),
        ("pipeline_send", 171, 1),
        ("exposed_grad_comm", 172, 3),
        ("optimizer", 175, 1),
        ("optimizer_inner_step", 176, 4),
        ("forward_backward_other", 180, 4),
        ("other", 184, 6),
        ("between_steps", 190, 10),
    ]


def test_phases_that_take_longer_than_their_iteration_are_cut_at_its_end() -> None:
    # by the device's clock, the host having run ahead: 30 ms more, and that much less between the steps
    events = events_of(
        make_phases(1, backward_ns=66 * MS, between_steps_ns=-20 * MS),
        make_step(1),
        make_phases(2),
        make_step(2),
    )
    assert spans_of(events, RANK_0, PHASES_OF_STEPS)[2:6] == [
        ("backward", 120, 66),
        ("pipeline_recv_wait", 186, 14),  # of 15 ms
        ("data_loading", 200, 2),
        ("forward", 202, 18),
    ]
    assert [e["args"] for e in events if e["name"] == "pipeline_recv_wait"][0] == {"dur_ns": 15 * MS}
    assert nests(events)


def test_ranks_stand_side_by_side_over_their_stretch() -> None:
    nothing: list[int | None] = [None] * 3
    work, wait = [80 * MS, 60 * MS, None], [20 * MS, 40 * MS, None]
    events = events_of(
        make_step(1), make_step(2), RanksRecord(1, 2, 1, nothing, work, wait, nothing, nothing, [2], 1)
    )
    assert [spans_of(events, RANKS, rank) for rank in range(3)] == [
        [("work", 100, 160), ("wait", 260, 40)],
        [("work", 100, 120), ("wait", 220, 80)],
        [],
    ]
    names = [
        e["args"]["name"]
        for e in events
        if e["ph"] == "M" and e["pid"] == RANKS and e["name"] == "thread_name"
    ]
    assert names == ["rank 0", "rank 1", "rank 2"]


def test_a_straggler_is_a_span_from_its_first_slow_iteration_to_its_last_also_without_an_end() -> None:
    steps = [make_step(n) for n in range(1, 5)]
    over = [make_straggler(), make_straggler(iteration=3, is_over=True)]
    never_over = make_straggler(ranks=[4, 5], iteration=2)
    events = [e for e in events_of(*steps, *over, never_over) if e["ph"] in "be"]
    assert [(e["ph"], e["name"], e["ts"] / 1000) for e in events] == [
        ("b", "slow: rank 3", 100),
        ("e", "slow: rank 3", 400),
        ("b", "slow: ranks 4, 5", 100),
        ("e", "slow: ranks 4, 5", 300),
    ]


def test_counters_and_instants() -> None:
    steps = [make_step(n) for n in range(1, 11)]
    events = events_of(
        *steps, make_interval(10), make_reading(50 * MS), make_event("slow", at_ns=60 * MS, text="a\x1b[2Jb")
    )
    counters = [(e["name"], e["ts"] / 1000, e["args"]["value"]) for e in events if e["ph"] == "C"]
    assert counters == [
        ("tokens/s", 1100, 10240),
        ("TFLOPS/GPU", 1100, 5),
        ("memory bytes", 1100, 2e9),
        ("power W", 50, 650),
        ("SM clock MHz", 50, 1980),
        ("temperature C", 50, 60),
    ]
    ((name, at, args),) = [(e["name"], e["ts"], e["args"]) for e in events if e["ph"] == "i"]
    assert (name, at, args) == ("slow", 60_000, {"text": "a\\x1b[2Jb"})


def test_what_is_unknown_is_not_there() -> None:
    unknown = {"model_flops": None, "memory_bytes": None}
    events = events_of(
        make_step(10),
        make_interval(10, **unknown),
        make_reading(1, power_mw=None, sm_clock_mhz=None, temperature_c=None),
    )
    assert [e["name"] for e in events if e["ph"] == "C"] == ["tokens/s"]
    assert events_of(make_interval(10), make_straggler(is_over=True)) == events_of()


def test_the_check_itself_sees_what_does_not_nest() -> None:
    inside, across = (
        {"ph": "X", "pid": 1, "tid": 1, "ts": 1.0, "dur": 1.0},
        {"ph": "X", "pid": 1, "tid": 1, "ts": 1.5, "dur": 1.0},
    )
    assert (nests([inside, across]), nests([inside, across | {"tid": 2}])) == (False, True)


def test_a_whole_run_nests_and_hostile_facts_are_escaped() -> None:
    events = events_of(*sample_run(), header=make_header(facts=make_facts(hostname='"]}\x1b')))
    assert nests(events)
    assert events[0]["args"]["name"] == 'rank 0 on "]}\\x1b'
    assert sum(e["ph"] == "X" and e["name"].startswith("iteration") for e in events) == 23


def test_it_is_made_line_by_line_and_its_memory_does_not_grow() -> None:
    def endless():
        number = 0
        while True:
            number += 1
            yield make_step(number)

    lines = trace_lines(make_header(), timeline(session_of(make_header())).items(endless()))
    assert '"iteration 20000"' in next(line for line in lines if '"iteration 20000"' in line)
