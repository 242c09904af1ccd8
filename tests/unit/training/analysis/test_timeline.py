"""The trace, loaded again: every slice in its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flagscale_perf.analysis.timeline import Item
from flagscale_perf.report.trace import pieces
from flagscale_perf.spine.records import Record, RunHeader
from flagscale_perf.training.analysis.timeline import (
    CAPTURED,
    CUTS,
    PHASES_ROW,
    SLOW,
    STEPS,
    STRETCHES,
    timeline,
)
from flagscale_perf.training.host import HostRecord
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import CutsRecord, NodeRecord, RanksRecord, StragglerRecord
from flagscale_perf.training.records import CapturedRecord
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
from tests.traces import Recorded, Trace, check, drawing_of, of_json


def trace_of(*records: Record, header: RunHeader | None = None) -> Trace:
    session: Any = Recorded(header or make_header(), *records)
    trace = of_json(b"".join(pieces(drawing_of(session.header), timeline(session).items(session))))
    check(trace)
    return trace


def spans_of(trace: Trace, row: tuple[str, int], rank: int = 0) -> list[tuple[str, float, float]]:
    """Name, start and length, in milliseconds."""
    return [
        (one.name, one.begin_ns / MS, (one.end_ns - one.begin_ns) / MS)
        for one in trace.slices
        if one.row == row[0] and f"rank {rank}" in one.process
    ]


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
    trace = trace_of(make_step(1, eval_ns=30 * MS, checkpoint_ns=20 * MS), make_skipped_data(5, 4))
    assert spans_of(trace, STEPS) == [
        ("iteration 1", 100, 150),
        ("train step", 100, 90),
        ("evaluation", 200, 30),
        ("checkpoint", 230, 20),
        ("iteration 5", 500, 4),
    ]
    assert [one.facts for one in trace.slices if one.name == "iteration 5"] == [
        {"outcome": "data_skipped", "samples": 0, "tokens": 0}
    ]


def test_phases_stand_end_to_end_in_their_iteration() -> None:
    trace = trace_of(make_phases(1), make_step(1))
    assert spans_of(trace, PHASES_ROW) == [
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
    trace = trace_of(
        make_phases(1, backward_ns=66 * MS, between_steps_ns=-20 * MS),
        make_step(1),
        make_phases(2),
        make_step(2),
    )
    assert spans_of(trace, PHASES_ROW)[2:6] == [
        ("backward", 120, 66),
        ("pipeline_recv_wait", 186, 14),  # of 15 ms
        ("data_loading", 200, 2),
        ("forward", 202, 18),
    ]
    facts = [one.facts for one in trace.slices if one.name in ("backward", "pipeline_recv_wait")]
    assert facts[:2] == [{}, {"dur_ns": 15 * MS}]


def test_ranks_stand_side_by_side_over_their_stretch() -> None:
    nothing: list[int | None] = [None] * 3
    work, wait = [80 * MS, 60 * MS, None], [20 * MS, 40 * MS, None]
    trace = trace_of(
        make_step(1), make_step(2), RanksRecord(1, 2, 1, nothing, work, wait, nothing, nothing, [2], 1)
    )
    assert [spans_of(trace, STRETCHES, rank) for rank in range(3)] == [
        [("work", 100, 160), ("wait", 260, 40)],
        [("work", 100, 120), ("wait", 220, 80)],
        [],
    ]


def test_a_straggler_is_a_span_from_its_first_slow_iteration_to_its_last_also_without_an_end() -> None:
    steps = [make_step(n) for n in range(1, 5)]
    over = [make_straggler(), make_straggler(iteration=3, is_over=True)]
    never_over = make_straggler(ranks=[4, 5], iteration=2)
    trace = trace_of(*steps, *over, never_over)
    assert spans_of(trace, SLOW, 3) == [("slow: rank 3", 100, 300)]
    assert spans_of(trace, SLOW, 4) == [("slow: ranks 4, 5", 100, 200)]


def test_counters_and_instants() -> None:
    steps = [make_step(n) for n in range(1, 11)]
    trace = trace_of(
        *steps, make_interval(10), make_reading(50 * MS), make_event("slow", at_ns=60 * MS, text="a\x1b[2Jb")
    )
    assert [(name, at_ns / MS, value) for _, name, at_ns, value in trace.counters] == [
        ("memory bytes", 190, 2e9),  # it holds from then on
        ("tokens/s", 1100, 10240),
        ("TFLOPS/GPU", 1100, 5),
        ("peak memory bytes", 1100, 3e9),
        ("power W", 50, 650),
        ("SM clock MHz", 50, 1980),
        ("temperature C", 50, 60),
    ]
    (moment,) = [one for one in trace.slices if one.row == "events"]
    assert (moment.name, moment.begin_ns, moment.end_ns) == ("slow", 60 * MS, 60 * MS)
    assert moment.facts == {"text": "a\\x1b[2Jb"}


def test_what_is_unknown_is_not_there() -> None:
    unknown = {"memory_peak_bytes": None, "model_flops": None}
    trace = trace_of(
        make_step(10, memory_bytes=None),
        make_interval(10, **unknown),
        make_reading(1, power_mw=None, sm_clock_mhz=None, temperature_c=None),
    )
    assert [name for _, name, *_ in trace.counters] == ["tokens/s"]
    assert trace_of(make_interval(10), make_straggler(is_over=True)) == trace_of()


def test_pressure_is_the_share_of_the_time_between_two_readings() -> None:
    first = HostRecord(100 * MS, cpu_stall_ns=50 * MS, memory_available_bytes=8)
    trace = trace_of(first, HostRecord(300 * MS, cpu_stall_ns=100 * MS, memory_available_bytes=7))
    assert [counter[1:] for counter in trace.counters] == [
        ("memory available bytes", 100 * MS, 8),
        ("memory available bytes", 300 * MS, 7),
        ("CPU pressure %", 300 * MS, 25.0),
    ]


def test_a_captured_step_has_each_phase_when_it_was() -> None:
    marks = [2, 10 * MS, 3, 20 * MS, 4, 5 * MS, 5, 30 * MS]  # forward from 10 to 30, backward from 35 to 65
    trace = trace_of(make_step(1), CapturedRecord(1, 1, 100 * MS, 90 * MS, marks))
    assert spans_of(trace, CAPTURED, 1) == [
        ("train step 1", 100, 90),
        ("other", 100, 10),
        ("forward", 110, 20),
        ("other", 130, 5),
        ("backward", 135, 30),
        ("other", 165, 25),
    ]


def test_another_rank_leaves_the_last_collective_of_a_step_when_rank_0_does() -> None:
    """Between two of them its phases stand end to end, what no timer names before what one does."""
    forward, other, comm = PHASES.index("forward"), PHASES.index("other"), PHASES.index("exposed_grad_comm")
    cuts = CutsRecord(
        1, 0, 2, [comm], [forward, other], [0, 1], [1, 1], [1, 2, 40 * MS, 20 * MS], [3, 25 * MS]
    )
    trace = trace_of(make_step(1), cuts)
    assert spans_of(trace, CUTS, 1) == [
        ("other", 105, 20),
        ("forward", 125, 40),
        ("exposed_grad_comm", 165, 25),
    ]
    assert spans_of(trace, CUTS, 0) == []  # it has its own phases


def test_ranks_have_the_pids_that_their_nodes_told_and_their_stage_and_replica() -> None:
    facts = make_facts(world_size=8, pipeline_parallel=2, data_parallel=2, tensor_parallel=2, hostname="a")
    header = make_header(facts=facts)
    node = NodeRecord("b", [6, 7], [60, 70], ["", ""], [1, 1])
    session: Any = Recorded(header, node, make_step(1), CapturedRecord(6, 1, 100 * MS, 90 * MS, []))
    made = {item.track.process for item in timeline(session).items(session) if isinstance(item, Item)}
    assert {(one.name, one.host, one.pid) for one in made} == {
        ("stage 0, replica 0, rank 0 on node0", "node0", 1234),
        ("stage 1, replica 1, rank 6 on b", "b", 60),
    }


def test_a_whole_run_nests_and_hostile_facts_are_escaped() -> None:
    header = replace(make_header(facts=make_facts(hostname='"]}\x1b')), host=None)
    trace = trace_of(*sample_run(), header=header)
    assert trace.processes == ['replica 0, rank 0 on "]}\\x1b']
    assert sum(one.name.startswith("iteration") for one in trace.slices) == 23


def test_it_is_made_line_by_line_and_its_memory_does_not_grow() -> None:
    def endless():
        number = 0
        while True:
            number += 1
            yield make_step(number)

    session: Any = Recorded(make_header())
    lines = pieces(drawing_of(session.header), timeline(session).items(endless()))
    assert next(line for line in lines if b'"iteration 20000"' in line)
