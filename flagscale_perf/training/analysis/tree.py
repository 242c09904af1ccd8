"""Where a training's time goes, as a tree: goodput, and the phases of rank 0 in what was productive."""

from __future__ import annotations

from collections.abc import Iterator
from operator import add

from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.tree import Node
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.units import ranges
from flagscale_perf.store.decoder import Chunk
from flagscale_perf.training.analysis.ledgers import WAIT_PARTS, words
from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.analysis.tables import Phase
from flagscale_perf.training.ledger.ledger import INSIDE, LateRow
from flagscale_perf.training.records import StepRecord

_KEYS = {"forward": "forward", "backward": "backward", "optimizer_inner_step": "optimizer"}
_FOR_LATE = WAIT_PARTS.index("for late ranks")


def tree_of(found: TrainingReport) -> Node:
    """The wall time by class; what was productive by phase, and waiting by who is late."""
    late = [row for ledger in found.ledgers[:1] for row in ledger.late]
    parts = []
    for part in found.goodput.parts:
        node = Node(part.label, part.dur_s)
        if part.name == "productive":
            node = Node(part.label, part.dur_s, list(_phases(found, late)), note=_compared(found))
        elif part.name == "late":
            node = Node(part.label, part.dur_s, [_late(row) for row in late], note=_compared(found))
        parts.append(node)
    return Node("wall time", found.goodput.wall_s, parts)


def steps_of(session: Session) -> Iterator[tuple[int, int]]:
    """Begin and end of each step, monotonic marks."""
    start, took = (StepRecord._fields.index(name) for name in ("start_ns", "iteration_ns"))
    for part in session.again().chunks({StepRecord}):
        if isinstance(part, Chunk):
            columns = part.columns[StepRecord]
            yield from zip(columns[start], map(add, columns[start], columns[took]), strict=True)


def _compared(found: TrainingReport) -> str:
    whole, steps = found.overview.iterations, found.phases.steps
    return f"phases of {steps:,} of {whole:,} iterations" if steps and steps != whole else ""


def _late(row: LateRow) -> Node:
    where = f"rank {ranges(row.ranks)}, {words(row.phase)}{', more work' if row.cause == 'work' else ''}"
    return Node(where, row.cost_ns / NS_PER_S, ranks=row.ranks, key=_KEYS.get(row.phase, ""))


def _phases(found: TrainingReport, late: list[LateRow]) -> Iterator[Node]:
    """Those of rank 0, without what is in the data stall and in waiting for late ranks."""
    steps = found.phases.steps
    for row in found.phases.rows:
        if row.total_s is None or row.name == "data_loading" and _is_apart(found, "data_stall"):
            continue
        waits = [
            Node(name, part_ms * steps / 1000)
            for number, (part_ms, name) in enumerate(zip(row.parts_ms, WAIT_PARTS, strict=False))
            if part_ms is not None and number != _FOR_LATE
        ]
        yield Node(
            words(row.name), row.total_s - _late_s(row, steps, late), waits, key=_KEYS.get(row.name, "")
        )


def _late_s(row: Phase, steps: int, late: list[LateRow]) -> float:
    """What rank 0 waits in this phase for late ranks; or, where it is late itself, makes others wait."""
    own = [one for one in late if one.phase == row.name and (0 in one.ranks or one.label == INSIDE)]
    own_s = sum(one.cost_ns for one in own) / NS_PER_S
    waits_ms = row.parts_ms[_FOR_LATE]
    return own_s + (0.0 if waits_ms is None else waits_ms * steps / 1000)


def _is_apart(found: TrainingReport, name: str) -> bool:
    return any(part.name == name and part.dur_s is not None for part in found.goodput.parts)
