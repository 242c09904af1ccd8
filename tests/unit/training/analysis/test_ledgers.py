"""A ledger as the table of a report: what it shows adds up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from flagscale_perf.analysis.blocks import Note, Quantity, Table
from flagscale_perf.analysis.replays import Cause, PathTimes
from flagscale_perf.training.analysis.captured import ALL_WORK
from flagscale_perf.training.analysis.ledgers import _captured, blocks_of, path_of, ranks_of
from flagscale_perf.training.analysis.tables import CapturedRanks, in_json
from flagscale_perf.training.ledger.ledger import OFF_PATH, ledger_of
from tests.reports import small
from tests.schedules import BACKWARD, FORWARD, GRADS, MS, noise, recorded


def test_the_rows_add_up_to_the_mean_step() -> None:
    uneven = noise(0.01, 1)
    ledger = ledger_of(
        recorded(
            3,
            range(2, 42),
            lambda rank, step, phase: uneven(rank, step, phase) + 20 * MS * ((rank, phase) == (2, FORWARD)),
        )
    )
    assert ledger is not None
    assert sum(row.total_ns for row in ledger.rows) == ledger.total_ns
    table = in_json(ledger)
    late, *_ = table["rows"]
    assert (late["kind"], late["ranks"], late["phase"], late["label"]) == (
        *("late", (2,), "forward", "measured"),
    )
    assert {tuple(row) for row in table["rows"]} == {
        (
            *("kind", "phase", "total_ns", "step_ms", "share", "ranks", "pattern", "distance", "usual_ms"),
            *("last_in", "alone_ms", "least_ms", "most_ms", "label", "cause", "work_ratio", "work_speed"),
            *("more_work_ms", "more_work_least_ms", "more_work_most_ms"),
        )
    }
    assert (late["step_ms"], late["usual_ms"]) == (pytest.approx(20, rel=0.05), pytest.approx(20, rel=0.05))
    assert [unit["ranks"] for unit in table["ranks"]] == [(0,), (1,), (2,)]
    block, *_ = blocks_of(ledger, stages=1, events={})
    assert isinstance(block, Table)
    assert block.title == "Where a mean step goes, all ranks considered: 40 iterations"
    assert block.rows[-1][0] == "mean step"


def test_ranks_that_are_not_laid_side_by_side_yet_have_their_ledger() -> None:
    ledger = ledger_of(recorded(3, range(2, 42), lambda rank, step, phase: 0))
    assert ledger is not None
    alone, *_ = ranks_of(replace(small(), ranks=None))
    assert isinstance(alone, Note)
    block, *others = ranks_of(replace(small(), ranks=None, ledgers=[ledger]))
    assert isinstance(block, Table)
    assert block.title == "Where a mean step goes, all ranks considered: 40 iterations"
    assert alone not in others


def test_a_late_rank_beside_the_path_is_said_to_cost_nothing() -> None:
    ledger = ledger_of(
        recorded(4, range(40), lambda rank, _, phase: 20 * MS * ((rank, phase) == (2, FORWARD)))
    )
    assert ledger is not None
    late = [replace(row, label=OFF_PATH, alone_ns=0, least_ns=0, most_ns=40 * MS) for row in ledger.late]
    table, *_ = blocks_of(replace(ledger, late=late), 2, {})
    assert isinstance(table, Table)
    words = next(row[3] for row in table.rows if row[0] == "late")
    text = "".join(str(part.value) if isinstance(part, Quantity) else str(part) for part in words)
    assert text.endswith("costs the job nothing: without it, 0.0 to 1.0; off the critical path")


def test_captured_steps_that_are_not_replayed_say_why() -> None:
    captured = CapturedRanks(
        [7], 100.0, [], {ALL_WORK: []}, [], [], not_replayed="the schedule 'x' is not known"
    )
    notes = [block.text for block in _captured(captured) if isinstance(block, Note)]
    assert notes[-1].endswith("captured steps are not replayed (the schedule 'x' is not known).")


def test_the_slowest_steps_say_whose_they_were_and_what_happened_in_them() -> None:
    uneven = noise(0.01, 1)
    stops = {(1, 7): 900 * MS, (0, 9): 500 * MS}

    def extra(rank: int, step: int, phase: int) -> int:
        everybody = 300 * MS * (step == 20 and phase == BACKWARD)
        return uneven(rank, step, phase) + everybody + (phase == FORWARD) * stops.get((rank, step), 0)

    ledger = ledger_of(recorded(2, range(2, 42), extra))
    assert ledger is not None
    found = [(one.iteration, list(one.ranks), one.phase) for one in ledger.slowest]
    assert found == [(7, [1], "forward"), (9, [0], "forward"), (20, [], "backward")]
    assert all(abs(one.beyond_ns - one.part_ns) < 0.1 * one.beyond_ns for one in ledger.slowest)
    first, *_ = in_json(ledger)["slowest"]
    slow = ledger.slowest[0]
    assert first == {
        "iteration": 7,
        "step_ms": slow.step_ns / MS,
        "beyond_ms": slow.beyond_ns / MS,
        "ranks": (1,),
        "phase": "forward",
        "part_ms": slow.part_ns / MS,
    }
    *_, block = blocks_of(ledger, stages=1, events={20: "note"})
    assert isinstance(block, Table)
    assert [row[:4] for row in block.rows] == [
        ("7", "rank 1", "forward", None),
        ("9", "rank 0", "forward", None),
        ("20", "all ranks", "backward", "note"),
    ]


def test_a_row_of_the_path_for_each_rank_phase_and_cause_the_most_first() -> None:
    """What a late rank takes longer is divided as the ledger divides its lateness."""
    causes_ns = Counter(
        {
            (1, BACKWARD, Cause.LONGER): 100 * MS,
            (1, BACKWARD, Cause.USUAL): 40 * MS,
            (0, FORWARD, Cause.LONGER): 30 * MS,
            (None, GRADS, Cause.TRANSFER): 20 * MS,
            (0, GRADS, Cause.WAITS): 10 * MS,
        }
    )
    own_ns = Counter({(rank, BACKWARD): 200 * MS for rank in (0, 1, 2)})
    own_ns[0, FORWARD] = own_ns[None, GRADS] = 40 * MS
    ledger = ledger_of(
        recorded(2, range(40), lambda rank, _, phase: 40 * MS * ((rank, phase) == (1, BACKWARD)))
    )
    assert ledger is not None
    (row,) = ledger.late
    parted = replace(row, more_work_ns=row.cost_ns * 3 // 4, more_work_least_ns=0, more_work_most_ns=0)
    table = path_of(PathTimes(2, {0: 0, 1: 0, 2: 1}, causes_ns, own_ns), [replace(ledger, late=[parted])])
    assert (table.steps, table.step_ms) == (2, 100)
    assert [(row.rank, row.stage, row.phase, row.cause, row.step_ms, row.slope) for row in table.rows] == [
        (1, 0, "backward", "more work", pytest.approx(37.5), 0.7),
        (1, 0, "backward", "usual work", 20, 0.7),
        (0, 0, "forward", "longer", 15, 0.75),
        (1, 0, "backward", "slower", pytest.approx(12.5), 0.7),
        (None, None, "exposed_grad_comm", "transfer", 10, 0.5),
        (0, 0, "exposed_grad_comm", "waits", 5, None),
    ]
    assert sum(row.step_ms for row in table.rows) == table.step_ms
    assert sum(row.share for row in table.rows) == pytest.approx(1)
