"""A training's lists as rows."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.training.analysis.lake import cut_rows, node_rows, rank_rows
from flagscale_perf.training.host import HostStretch
from flagscale_perf.training.rank_records import PHASE_BASE, CutsRecord
from tests.fakes import MS
from tests.synthetic import node_record, ranks_record


def test_a_node_is_a_row_a_rank_also_where_a_list_is_short() -> None:
    record = node_record(ranks=[4, 5], pids=[100], devices=["H200", "H100"], stages=[0, 1, 7])
    assert [tuple(row) for row in node_rows(record)] == [
        ("node0", 4, 100, "H200", 0),
        ("node0", 5, None, "H100", 1),
    ]


def test_ranks_are_a_row_an_entry() -> None:
    host = {"run_delay_ns": [5] * 8, "unknown": [1] * 8}
    record = replace(ranks_record(40), ranks_per_entry=2, silent=[6, 7, 99], silent_count=3, host=host)
    rows = list(rank_rows(record))
    assert [row.rank for row in rows] == list(range(0, 16, 2))
    assert [row.is_silent for row in rows] == [False] * 3 + [True] + [False] * 4
    assert {(row.ranks, row.silent_count, row.run_delay_ns, row.cores) for row in rows} == {(2, 3, 5, None)}
    assert rows[0][:9] == (31, 40, 0, 2, 1000 * MS, 950 * MS, 50 * MS, 5 * MS, 110 * 10**9)
    assert rows[0]._fields[11:] == HostStretch._fields


def test_cuts_are_a_row_a_unit_cut_and_phase() -> None:
    work = [128, 4096, -1, 2, 100, 4000, -1, 2]
    record = CutsRecord(7, 1, 9, [5], [1, 2], [3, 4], [2, 0], [10, 20, 30, 40], [50, 60], work)
    assert PHASE_BASE > 5
    assert [tuple(row)[3:8] for row in cut_rows(record)] == [
        ([3, 4], 0, "forward", False, 10),
        ([3, 4], 0, "backward", False, 20),
        ([3, 4], 0, "exposed_grad_comm", True, 50),
        (None, 0, "forward", False, 30),
        (None, 0, "backward", False, 40),
        (None, 0, "exposed_grad_comm", True, 60),
    ]
    worked = [(128, 4096, None, 2)] * 3 + [(100, 4000, None, 2)] * 3
    assert [tuple(row)[8:] for row in cut_rows(record)] == worked
    earlier = replace(record, work=None)
    assert {tuple(row)[8:] for row in cut_rows(earlier)} == {(None,) * 4}
