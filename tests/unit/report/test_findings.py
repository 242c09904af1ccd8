"""A finding in words."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.rules import Change, Link
from flagscale_perf.report.findings import cost, rows
from tests.reports import finding


def test_every_line_of_a_finding() -> None:
    assert rows(finding()) == [
        ("costs", "7.4 s, 11.0 % of the wall time; without it at most +12.0 % tokens/s"),
        ("evidence", "loading data, of an iteration: 11.0 %, limit 2.0 % (ours: one batch ahead)"),
        ("iterations", "2 to 30"),
        ("ranks", "4 to 7"),
        ("may be due to", "too few loader processes; slow or far storage"),
        ("change", "--num-workers: raise it: more processes prepare batches ahead"),
    ]


def test_what_explains_it_and_what_explains_that_each_once() -> None:
    module = replace(finding(), title="layer 1 sleeps", instrument="profile", changes=[Change([], "wake it")])
    wait = replace(finding(), title="others wait", links=[Link(module, 0.9)], causes=["a sleeper"])
    part = replace(finding(), title="a busy host")
    links = [Link(wait, 0.95), Link(part, 0.25)]
    lines = rows(replace(finding(), instrument="training", links=links))
    assert [
        line for line in lines if line[0] in ("found by", "explained by", "and that by", "in part by")
    ] == [
        ("found by", "training"),
        ("explained by", "others wait (95.0 % of it)"),
        ("and that by", "layer 1 sleeps (90.0 % of it, found by profile)"),
        ("in part by", "a busy host (25.0 % of it)"),
    ]
    # advice and possible causes are those of what is at the bottom
    assert lines[-2:] == [
        ("may be due to", "too few loader processes; slow or far storage"),
        ("change", "wake it"),
    ]


def test_a_risk_costs_nothing_yet() -> None:
    assert cost(finding(cost_s=None, cost_share=None, gain=None)) == "a risk: costs nothing yet"
