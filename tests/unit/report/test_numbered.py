"""A process has one number in a trace, and no two have the same."""

from __future__ import annotations

from flagscale_perf.analysis.timeline import Process
from flagscale_perf.report.numbered import Numbers


def test_a_process_has_its_pid_once_and_what_has_none_a_number_that_no_pid_can_be() -> None:
    rank = Process("node0", 7, "s1", "training", "rank 0", 0)
    same = Process("node0", 7, "s2", "trace", "Actor")
    elsewhere, unknown = Process("node1", 7, "s1", "trace", "Actor"), Process(None, None, "s", "toy", "x")
    numbers = Numbers({rank.key: rank})
    found = [numbers.of(each) for each in (same, rank, elsewhere, unknown, elsewhere)]
    assert found[:2] == [(7, True), (7, False)]
    assert [is_new for _, is_new in found] == [True, False, True, True, False]
    assert len({number for number, _ in found}) == 3 and found[2][0] >= 1 << 24
    assert (numbers.shown(same), numbers.shown(elsewhere)) == (rank, elsewhere)
