"""A wait is one number: in the ledger, in every rank's phases, in a finding, as data and on each page."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.report import html, markdown, text
from flagscale_perf.report import json as as_json
from flagscale_perf.spine.units import percent
from flagscale_perf.training.analysis.blocks import report_of
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.analysis.tables import phases_of
from tests.fakes import MS
from tests.synthetic import STEPS, Plan, cuts_records, node_record, ranks_record, write

EXCHANGED_NS = 100 * MS  # more than in an even step, all in gradients


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> TrainingReport:
    """Of eight ranks of which the sixth is late in forward, and whose gradients take long to exchange."""
    even = cuts_records(lambda rank, step: {"forward_ns": 200 * MS * (rank == 5)})
    slow = [
        replace(
            each,
            wait_ns=[
                ns + EXCHANGED_NS * (place % len(each.waits) == 0) for place, ns in enumerate(each.wait_ns)
            ],
        )
        for each in even
    ]
    also = [node_record(), ranks_record(STEPS), *slow]
    plan = Plan(extra=lambda _: {"exposed_grad_comm_ns": EXCHANGED_NS + 200 * MS}, also=also)
    return read_report(open_session(write(plan, tmp_path_factory.mktemp("run"))))


def test_tables_and_finding_have_the_exchange_of_the_ledger(found: TrainingReport) -> None:
    (ledger,) = found.ledgers
    exchanged = {row.phase: row for row in ledger.rows if row.kind == "exchange"}
    assert ledger.step_ms(exchanged["exposed_grad_comm"].total_ns) == pytest.approx(120, rel=0.02)
    for rows in (found.phases.rows, *(phases_of(ledger, unit) for unit in ledger.ranks)):
        shown = {row.name: row for row in rows}
        for name, row in exchanged.items():
            assert shown[name].exchange_ms == ledger.step_ms(row.total_ns)
            parts = [part for part in shown[name].parts_ms if part is not None]
            assert sum(parts) == pytest.approx(shown[name].step_ms)
        assert sum(row.step_ms or 0 for row in rows) == pytest.approx(ledger.step_ms(ledger.total_ns))
    (finding,) = (each for each in found.findings if each.name == "exposed_comm")
    assert finding.evidence[0].value == pytest.approx(
        sum(ledger.share(row.total_ns) for row in exchanged.values())
    )
    assert percent(finding.evidence[0].value) in finding.title


def test_waiting_for_a_late_rank_is_what_its_finding_costs(found: TrainingReport) -> None:
    (ledger,) = found.ledgers
    (late,) = ledger.late
    (finding,) = (each for each in found.findings if each.name == "straggler")
    assert (finding.ranks, finding.evidence[0].value) == (list(late.ranks), ledger.share(late.cost_ns))
    waits = {
        tuple(unit.ranks): sum(row.late_ms or 0 for row in phases_of(ledger, unit)) for unit in ledger.ranks
    }
    assert waits.pop((5,)) == 0
    assert list(waits.values()) == pytest.approx([ledger.step_ms(late.cost_ns)] * 7)


def _lines(page: str) -> list[str]:
    """What is read of a page, row by row."""
    rows = re.sub(r"</tr>|<tr", "\n<", page)
    return [" ".join(re.sub(r"<[^>]*>|\|", " ", row).split()) for row in rows.splitlines()]


@pytest.mark.parametrize("render", [text.render, markdown.render, html.render])
def test_a_page_shows_it_alike_everywhere(found: TrainingReport, render: object) -> None:
    report = report_of(found)
    lines = _lines(render(report))  # type: ignore[operator]
    (of_all,) = (
        re.findall(r"[\d.]+ ms", line) for line in lines if line.startswith("exchange exposed grad comm")
    )
    ranks = [
        re.findall(r"[\d.]+ ms", line) for line in lines if line.startswith("exposed grad comm: exchange")
    ]
    rank_0 = [line for line in lines if line.startswith("exposed grad comm") and ": " not in line]
    assert ranks == [of_all * 8]
    assert any(of_all[0] in line for line in rank_0)


def test_its_data_have_it_alike(found: TrainingReport) -> None:
    content = json.loads(as_json.render(report_of(found)))
    (row,) = (
        row
        for row in content["ledgers"][0]["rows"]
        if (row["kind"], row["phase"]) == ("exchange", "exposed_grad_comm")
    )
    (phase,) = (row for row in content["phases"]["rows"] if row["name"] == "exposed_grad_comm")
    assert json.dumps(row["step_ms"]) == json.dumps(phase["exchange_ms"])
