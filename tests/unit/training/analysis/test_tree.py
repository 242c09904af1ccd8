"""Goodput, phases and late ranks as a tree that adds up, and what a planted late rank is in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.tree import Node
from flagscale_perf.spine.records import Record
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.analysis.tree import steps_of, tree_of
from flagscale_perf.training.records import StepRecord
from tests import synthetic
from tests.synthetic import MS

STEPS, LATE_MS = 100, 50


def _read(directory: Path, also: Sequence[Record] = ()) -> TrainingReport:
    return read_report(open_session(synthetic.write(synthetic.Plan(steps=STEPS, also=also), directory)))


def _late(rank: int) -> list[Record]:
    """That rank's forward takes longer in every step."""
    return [
        *synthetic.cuts_records(lambda other, _: {"forward_ns": LATE_MS * MS} if other == rank else {}, STEPS)
    ]


def _by_name(node: Node) -> dict[str, Node]:
    return {one.name: one for one in node.parts}


def _adds_up(node: Node) -> bool:
    known = [one.dur_s for one in node.parts if one.dur_s is not None]
    return (not known or sum(known) == pytest.approx(node.dur_s)) and all(map(_adds_up, node.parts))


def test_productive_time_by_phase_and_what_is_left(tmp_path: Path) -> None:
    report = _read(tmp_path)
    tree = tree_of(report).closed()
    assert tree.dur_s == pytest.approx(report.goodput.wall_s)
    assert _adds_up(tree)
    productive = _by_name(tree)["productive"]
    forward = next(row for row in report.phases.rows if row.name == "forward")
    assert _by_name(productive)["forward"].dur_s == pytest.approx(forward.total_s)
    assert "data loading" not in _by_name(productive)  # it is a class of its own
    assert productive.note == f"phases of {report.phases.steps} of {STEPS} iterations"


@pytest.mark.parametrize("rank", [0, 5])
def test_what_a_late_rank_costs_is_not_productive_whoever_it_is(tmp_path: Path, rank: int) -> None:
    report = _read(tmp_path, _late(rank))
    (ledger,) = report.ledgers
    planted_s = LATE_MS * (STEPS - 1) / 1000
    assert ledger.late_ns / 1e9 == pytest.approx(planted_s, rel=0.1)
    parts = {part.name: part.dur_s or 0.0 for part in report.goodput.parts}
    iterations_s = parts["productive"] + parts["late"] + parts["data_stall"]
    assert parts["late"] == pytest.approx(iterations_s * ledger.share(ledger.late_ns))
    straggler = next(one for one in report.findings if one.name == "straggler")
    assert parts["late"] == pytest.approx(straggler.cost_s, rel=0.03)
    tree = tree_of(report).closed()
    assert _adds_up(tree)
    late = _by_name(tree)["late ranks"]
    assert (late.parts[0].name, late.parts[0].ranks) == (f"rank {rank}, forward", (rank,))
    assert late.parts[0].dur_s == pytest.approx(ledger.late_ns / 1e9)
    # what rank 0 is late itself is not in its phases either
    forward = _by_name(_by_name(tree)["productive"])["forward"]
    usual = next(part for part in ledger.rows if part.kind == "base" and part.phase == "forward")
    assert forward.dur_s == pytest.approx(usual.total_ns / 1e9, rel=0.02)


def test_even_ranks_are_known_to_cost_nothing(tmp_path: Path) -> None:
    late = next(
        part
        for part in _read(tmp_path, synthetic.cuts_records(lambda *_: {}, STEPS)).goodput.parts
        if part.name == "late"
    )
    assert late.dur_s == 0.0


def test_steps_are_those_of_the_run_file(tmp_path: Path) -> None:
    session = open_session(synthetic.write(synthetic.Plan(steps=5), tmp_path))
    steps = [(each.start_ns, each.start_ns + each.iteration_ns) for each in session.records(StepRecord)]
    assert list(steps_of(session)) == steps and len(steps) == 5
