"""Healthy runs with every kind of noise: nothing names a cause."""

from __future__ import annotations

import pytest

from flagscale_perf.spine.records import RUNNING, RunHeader
from flagscale_perf.store.run_file import Reading
from flagscale_perf.training.analysis.findings.findings import RULES
from flagscale_perf.training.analysis.fold import RunFold
from tests.noisy import KINDS, plan
from tests.synthetic import Plan, records_of

RUNS = 40  # of each kind: 280 in all
NAMELESS = {rule.name for rule in RULES if not rule.names_cause}
START = "slow_start"  # a neighbour that leaves after the first steps is one, and nothing tells the two apart


def named_in(run: Plan) -> list[str]:
    """Titles of the findings that name a cause."""
    header, *records = records_of(run)
    assert isinstance(header, RunHeader)
    fold = RunFold(header)
    for record in records:
        fold.add(record)
    report = fold.report(Reading("here", {}, 0, []), RUNNING)
    return [
        f"{finding.name}: {finding.title}"
        for finding in report.findings
        if finding.name not in {*NAMELESS, START}
    ]


def test_only_jitter_names_no_cause() -> None:
    assert {"jitter"} == NAMELESS


@pytest.mark.parametrize("kind", KINDS)
def test_noise_has_no_cause(kind: str) -> None:
    named = {seed: titles for seed in range(RUNS) if (titles := named_in(plan(kind, seed)))}
    if kind == "drift":  # becomes slower or faster in truth, in no phase in particular
        named = {
            seed: titles for seed, titles in named.items() if not titles[0].startswith("slowdown: A step")
        }
    if kind == "pausing":  # has a rhythm in truth
        named = {seed: titles for seed, titles in named.items() if not titles[0].startswith("periodic_steps")}
    assert named == {}
