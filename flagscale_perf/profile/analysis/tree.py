"""The profiled steps of each rank as a tree: part of the step, module, operators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

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
    own = [cell for cell in sums.cells if cell.rank == number]
    parts = [
        Node(part, _taken_s(cells, steps), _places(cells, steps), key=part, most=MOST_PLACES)
        for part, cells in _grouped(own, lambda cell: cell.phase).items()
    ]
    name = f"in {steps:,} profiled {sums.phase} steps, {sums.titles[number]}"
    return Node(name, books.total * steps / NS_PER_S, parts, ranks=(rank.rank,))


def _places(cells: Sequence[Cell], steps: int) -> list[Node]:
    return _longest_first(
        Node(name, _taken_s(own, steps), _operators(own, steps), most=MOST_OPERATORS)
        for name, own in _grouped(cells, lambda cell: cell.place.name).items()
    )


def _operators(cells: Sequence[Cell], steps: int) -> list[Node]:
    by_op = _grouped(cells, lambda cell: cell.op or cell.kind)
    return _longest_first(Node(name, _taken_s(own, steps)) for name, own in by_op.items())


def _grouped(cells: Sequence[Cell], key: Callable[[Cell], str]) -> Mapping[str, Sequence[Cell]]:
    found: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        found[key(cell)].append(cell)
    return found


def _longest_first(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda one: -(one.dur_s or 0.0))


def _taken_s(cells: Sequence[Cell], steps: int) -> float:
    return sum(cell.self_ns for cell in cells) * steps / NS_PER_S
