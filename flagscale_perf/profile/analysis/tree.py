"""The profiled steps of each rank as a tree: part of the step, module, operators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from flagscale_perf.analysis.tree import Node
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.sums import Cell, PhaseSums
from flagscale_perf.spine.clock import NS_PER_S

MOST_PLACES, MOST_OPERATORS = 8, 3  # beside the rest


def tree_of(found: ProfileReport) -> Node | None:
    """A part for each rank: the kind of step with the most time; None without a profiled step."""
    sums = found.main
    if sums is None:
        return None
    return Node("profiled steps", None, [_rank(found, sums, number) for number in sums.books])


def _rank(found: ProfileReport, sums: PhaseSums, number: int) -> Node:
    books, rank = sums.books[number], found.profile.ranks[number]
    steps = books.steps
    by_part: dict[str, list[Cell]] = defaultdict(list)
    for cell in sums.cells:
        if cell.rank == number:
            by_part[cell.phase].append(cell)
    parts = [
        Node(part, _taken_s(cells, steps), _places(cells, steps), key=part, most=MOST_PLACES)
        for part, cells in by_part.items()
    ]
    name = f"in {steps:,} profiled {sums.phase} steps, {sums.titles[number]}"
    return Node(name, books.total * steps / NS_PER_S, parts, ranks=(rank.rank,))


def _places(cells: Sequence[Cell], steps: int) -> list[Node]:
    by_place: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_place[cell.place.name].append(cell)
    nodes = [
        Node(name, _taken_s(own, steps), _operators(own, steps), most=MOST_OPERATORS)
        for name, own in by_place.items()
    ]
    return sorted(nodes, key=lambda one: -(one.dur_s or 0.0))


def _operators(cells: Sequence[Cell], steps: int) -> list[Node]:
    by_op: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_op[cell.op or cell.kind].append(cell)
    nodes = [Node(name, _taken_s(own, steps)) for name, own in by_op.items()]
    return sorted(nodes, key=lambda one: -(one.dur_s or 0.0))


def _taken_s(cells: Sequence[Cell], steps: int) -> float:
    return sum(cell.self_ns for cell in cells) * steps / NS_PER_S
