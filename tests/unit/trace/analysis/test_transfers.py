"""What is kept of operations for the lineage."""

from __future__ import annotations

from flagscale_perf.trace.analysis import transfers
from flagscale_perf.trace.analysis.lineage import join
from flagscale_perf.trace.analysis.transfers import Transfers, What
from flagscale_perf.trace.records import ClearRecord, Kind
from tests.trace_runs import MS, US, make_call, make_get, make_operation


def test_a_puts_samples_are_there_before_its_controller_has_answered() -> None:
    kept = Transfers()
    kept.add(make_operation(start_ns=11 * MS), "P 1", What("train"))
    kept.add(make_get(start_ns=MS), "C 2", What("train", ((5, 2), (9, 1))))
    put, get = kept.transfers
    assert (put.kind, put.start_ns, put.end_ns, put.ready_ns) == (Kind.PUT, 11 * MS, 15 * MS, 13_700 * US)
    assert (put.ranges, get.ranges, get.ready_ns) == (((0, 64),), ((5, 2), (9, 1)), MS)


def test_indexes_that_were_not_recorded_are_unknown() -> None:
    kept = Transfers()
    for changed in ({"rows": 60}, {"first_row": None, "last_row": None}, {"rows": 0}):
        kept.add(make_operation(**changed), "P", What("train"))
    assert [transfer.ranges for transfer in kept.transfers] == [None, None, ()]


def test_what_failed_moves_nothing_and_what_is_too_much_is_counted(monkeypatch) -> None:
    monkeypatch.setattr(transfers, "MAX_KEPT", 1)
    kept = Transfers()
    for error in (3, 0, 0):
        kept.add(make_operation(error=error), "P", What("train"))
    for number in (1, 2):
        kept.add_call(make_call(number=number), "P", "rollout")
    assert (len(kept.transfers), kept.left_out, list(kept.works)) == (1, 1, [("P", 1)])


def test_more_samples_than_can_be_followed_are_left_out_and_cost_no_memory() -> None:
    kept = Transfers()
    kept.add(make_operation(rows=10**12, first_row=0, last_row=10**12 - 1), "P 1", What("train"))
    kept.add(make_get(), "C 2", What("train", ((0, 10**12),)))
    kept.add(make_operation(), "P 1", What("train"))
    kept.add_clear(ClearRecord(1, 0, MS, MS, 1, 0, 0, 0, [0, 10**12]), "train")
    assert (len(kept.transfers), kept.left_out) == (1, 2)
    assert (kept.clears[0].ranges, kept.clears[0].is_known) == ((), False)
    assert join(kept).made == 64


def test_an_operation_is_of_the_function_it_was_made_in() -> None:
    kept = Transfers()
    kept.add(make_operation(call=2), "P 1", What("train"))
    kept.add(make_operation(), "P 1", What("train"))
    kept.add_call(make_call(number=2), "P 1", "rollout")
    assert [kept.function_of(transfer) for transfer in kept.transfers] == ["rollout", "P 1"]
