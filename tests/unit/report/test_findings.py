"""A finding in words."""

from __future__ import annotations

from flagscale_perf.report.findings import cost, rows
from tests.reports import finding


def test_every_line_of_a_finding() -> None:
    assert rows(finding()) == [
        ("costs", "7.4 s, 11.0 % of the wall time; without it at most +12.0 % tokens/s"),
        ("evidence", "loading data, of an iteration: 11.0 %, limit 2.0 % (ours: one batch ahead)"),
        ("iterations", "2 to 30"),
        ("ranks", "4 to 7"),
        ("likely causes", "too few loader processes; slow or far storage"),
        ("change", "--num-workers: raise it: more processes prepare batches ahead"),
    ]


def test_a_risk_costs_nothing_yet() -> None:
    assert cost(finding(cost_s=None, cost_share=None, gain=None)) == "a risk: costs nothing yet"
