"""What is summed up of calls and operations."""

from __future__ import annotations

from flagscale_perf.trace.analysis import sums
from flagscale_perf.trace.analysis.lines import Operations
from flagscale_perf.trace.analysis.sums import MANY, NS, Sums
from flagscale_perf.trace.figures import MIB
from flagscale_perf.trace.records import Kind
from flagscale_perf.trace.sums import FunctionSums
from tests.trace_runs import MS, make_call, make_get, make_operation


def test_calls_of_a_function_in_several_processes_are_one() -> None:
    found = Sums()
    for process in ("A 1", "A 1", "B 2"):
        found.add_call(make_call(trace_id="t"), process, "rollout", "")
    found.add_call(make_call(total_ns=MS, get_ns=0, compute_ns=None, put_ns=None), "A 1", "boom", "OSError")
    one = found.functions["rollout"]
    assert (one.calls, one.parts(), one.queue_share, one.compute_share) == (
        3,
        (18 * MS, 270 * MS, 12 * MS),
        0.1,
        0.9,
    )
    assert (list(found.functions), found.trace_count) == (["rollout", "boom"], 2)
    assert found.overall() == (301 * MS, 18 * MS, 270 * MS, 12 * MS)


def test_functions_that_are_something_elses_ids_do_not_fill_the_memory(monkeypatch) -> None:
    monkeypatch.setattr(sums, "MAX_FUNCTIONS", 2)
    found = Sums()
    for number in range(5):
        found.add_call(make_call(), "P", f"f{number}", "")
    assert {name: one.calls for (_, name), one in found.by_process.items()} == {"f0": 1, "f1": 1, MANY: 3}


def test_stages_and_what_they_leave_are_the_whole() -> None:
    found = Sums()
    found.add_operation(make_get(weight_milli=3000), "P", "unit1", "")
    found.add_operation(make_get(unit_ns=None, decode_ns=None, pack_ns=None), "P", "", "")
    fall = found.operations[Kind.GET].waterfall()
    assert [(name, round(share, 4)) for name, _, share in fall] == [
        ("unit", 0.6667),
        ("decode", 0.1667),
        ("pack", 0.1333),
        ("other", 0.0333),
    ]
    assert sum(took for _, took, _ in fall) == 18 * MS  # of the one that was measured, three times


def test_throughput_below_the_limit_is_counted() -> None:
    found = Sums()
    for took_ns in (4 * MS, 20 * MS):  # 250 and 50 MB/s
        found.add_operation(make_operation(total_ns=took_ns), "P", "", "")
    put = found.operations[Kind.PUT]
    assert (put.speed.high, put.slow, put.speed.count) == (250 * MIB, 1, 2)


def test_a_line_says_as_much_as_a_record() -> None:
    found, other = Sums(), Sums()
    found.add_operation(make_operation(), "P", "", "")
    other.add_text("P", Operations("", Kind.PUT, 1.0, "", [0.004], [MIB], [64], [4], []))
    one, two = found.operations[Kind.PUT], other.operations[Kind.PUT]
    assert (one.total.total, one.size.total, list(one.shapes.kept)) == (
        two.total.total,
        two.size.total,
        list(two.shapes.kept),
    )


def test_shares_stand_in_for_stages_that_are_missing() -> None:
    one = FunctionSums()
    one.total.add(NS)
    one.compute.add(0.8 * NS)
    one.add_shares(NS, (10.0, 80.0, 10.0))
    assert one.parts() == (0.1 * NS, 0.8 * NS, 0.1 * NS)
