"""The recorded cuts of one pipeline stage as a table of units, steps and columns; who was ahead in it, and
who came last.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from flagscale_perf.training.ledger.cuts import WAITING
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import PHASE_BASE, CutsRecord

Unit = tuple[int, ...]  # its ranks
Place = tuple[int, int]  # of a unit, and a phase

SAME_MOMENT_SHARE = 0.5  # of the spread of arrivals: ends that lie so much closer together are one moment
SAME_MOMENT_OF_WAIT = 0.05
SAME_MOMENT_NS = 300_000  # what hosts' clocks and schedulers make of one moment


class Way(NamedTuple):
    """A column: the time in one phase on the way to one cut."""

    cut: int
    phase: int


class Step(NamedTuple):
    """One step of all units.

    Attributes:
        iteration: its number.
        own_ns: for each unit a value for each column.
        wait_ns: for each unit a value for each cut.
        beyond_ns: for each unit and column, by how much it is longer than the median of the others.
    """

    iteration: int
    own_ns: list[list[int]]
    wait_ns: list[list[int]]
    beyond_ns: list[list[int]]


class Book(NamedTuple):
    """The steps of a stage that have the same cuts.

    Attributes:
        units: in the order of their rows.
        waits: the phase of the wait at each cut.
        ways: the columns, those of one cut beside one another.
        steps: by iteration.
        left_out: how many steps have other cuts.
    """

    units: list[Unit]
    waits: list[int]
    ways: list[Way]
    steps: list[Step]
    left_out: int

    def own_phases(self) -> list[int]:
        """Those in which a unit can be late by its own doing."""
        return sorted({way.phase for way in self.ways} - WAITING)

    def columns(self) -> list[range]:
        """For each cut the columns that lead to it."""
        ends = list(accumulate(sum(way.cut == cut for way in self.ways) for cut in range(len(self.waits))))
        return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def book_of(records: Sequence[CutsRecord]) -> Book | None:
    """None where no two units have been recorded side by side. Records with phases of another version are
    left out.
    """
    known = list(filter(_has_known_phases, records))
    shapes = Counter(tuple(record.waits) for record in known)
    if not shapes:
        return None
    waits = max(shapes, key=lambda shape: shapes[shape])
    alike = sorted(
        (record for record in known if tuple(record.waits) == waits), key=lambda each: each.iteration
    )
    units = sorted({unit for record in alike for unit, *_ in _rows(record) if unit})
    ways = [
        Way(*divmod(column, PHASE_BASE)) for column in sorted({c for record in alike for c in record.columns})
    ]
    book = Book(units, list(waits), ways, [], len(records) - len(alike))
    if len(units) < 2:
        return None
    book.steps.extend(_step_of(record, book) for record in alike)
    return _without_false_cuts(book)


def _has_known_phases(record: CutsRecord) -> bool:
    phases = [*record.waits, *(column % PHASE_BASE for column in record.columns)]
    return all(0 <= phase < len(PHASES) for phase in phases)


def _rows(record: CutsRecord) -> Iterator[tuple[Unit, list[int], list[int]]]:
    columns, cuts, rank = len(record.columns), len(record.waits), 0
    for row, size in enumerate(record.sizes):
        unit = tuple(record.ranks[rank : rank + size])
        rank += size
        yield (
            unit,
            record.own_ns[row * columns : (row + 1) * columns],
            record.wait_ns[row * cuts : (row + 1) * cuts],
        )


def _step_of(record: CutsRecord, book: Book) -> Step:
    """A unit that was not recorded in this step has what was usual in it, and waits for what is left."""
    place = {column: number for number, column in enumerate(record.columns)}
    at = [place.get(way.cut * PHASE_BASE + way.phase) for way in book.ways]
    found = {
        unit: ([0 if column is None else values[column] for column in at], wait)
        for unit, values, wait in _rows(record)
    }
    if () not in found:
        own_ns = [found[unit][0] for unit in book.units if unit in found]
        if len(own_ns) == len(book.units):
            return Step(record.iteration, own_ns, [found[unit][1] for unit in book.units], _beyond(own_ns))
    usual = found.pop((), None) or next(iter(found.values()))
    known = next(iter(found.values()), usual)
    left_ns = [
        wait + sum(known[0][column] - usual[0][column] for column in columns)
        for wait, columns in zip(known[1], book.columns(), strict=True)
    ]
    rows = [found.get(unit, (usual[0], left_ns)) for unit in book.units]
    beyond = [[ns - middle for ns, middle in zip(row, usual[0], strict=True)] for row, _ in rows]
    return Step(record.iteration, [row for row, _ in rows], [wait for _, wait in rows], beyond)


def _beyond(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    beyond = [[0] * len(rows[0]) for _ in rows]
    low, high = (len(rows) - 2) // 2, (len(rows) - 1) // 2  # places of the median among the others
    for column, values in enumerate(zip(*rows, strict=True)):
        order = sorted(range(len(values)), key=values.__getitem__)
        for place, unit in enumerate(order):
            usual = values[order[low + (place <= low)]] + values[order[high + (place <= high)]]
            beyond[unit][column] = values[unit] - usual // 2
    return beyond


def _without_false_cuts(book: Book) -> Book:
    """A wait that does not end at one moment for all units is no cut: it is time like any other on the way to
    the next one. The last cut stays.
    """
    columns = book.columns()
    kept = [
        cut
        for cut in range(len(book.waits))
        if cut == len(book.waits) - 1 or _is_one_moment(book, cut, columns[cut])
    ]
    if len(kept) == len(book.waits):
        return book
    target = [
        next(place for place, cut in enumerate(kept) if cut >= number) for number in range(len(book.waits))
    ]
    false = [cut for cut in range(len(book.waits)) if cut not in kept]
    moved = [Way(target[way.cut], way.phase) for way in book.ways]
    waited = [Way(target[cut], book.waits[cut]) for cut in false]
    ways = sorted({*moved, *waited})
    place = {way: number for number, way in enumerate(ways)}

    def merged(step: Step) -> Step:
        """The step with the false cuts' waits among its columns."""
        own = [[0] * len(ways) for _ in book.units]
        for mine, row, wait in zip(own, step.own_ns, step.wait_ns, strict=True):
            for way, value in zip(moved, row, strict=True):
                mine[place[way]] += value
            for way, cut in zip(waited, false, strict=True):
                mine[place[way]] += wait[cut]
        wait_ns = [[wait[cut] for cut in kept] for wait in step.wait_ns]
        return Step(step.iteration, own, wait_ns, _beyond(own))

    return Book(
        book.units, [book.waits[cut] for cut in kept], ways, list(map(merged, book.steps)), book.left_out
    )


def _is_one_moment(book: Book, cut: int, columns: range) -> bool:
    arrivals, ends, waits = [], [], []
    for step in book.steps:
        own = [sum(row[column] for column in columns) for row in step.own_ns]
        arrivals.append(max(own) - min(own))
        end = [ns + wait[cut] for ns, wait in zip(own, step.wait_ns, strict=True)]
        ends.append(max(end) - min(end))
        waits.append(min(wait[cut] for wait in step.wait_ns))
    limit_ns = max(
        SAME_MOMENT_SHARE * statistics.median(arrivals),
        SAME_MOMENT_OF_WAIT * statistics.median(waits),
        SAME_MOMENT_NS,
    )
    return statistics.median(ends) <= limit_ns


class Lateness(NamedTuple):
    """Of every unit and phase in which a unit can be late, step by step.

    Attributes:
        beyond_ns: what it takes longer than the others do, all cuts together.
        gain_ns: by how much sooner the step would end without that, if nothing else changed: no more than
            its lead over the second latest.
    """

    beyond_ns: dict[Place, list[int]]
    gain_ns: dict[Place, list[int]]


def lateness_of(book: Book) -> Lateness:
    """Of each unit and phase."""
    places = [(unit, phase) for unit in range(len(book.units)) for phase in book.own_phases()]
    beyond = {place: [0] * len(book.steps) for place in places}
    gain = {place: [0] * len(book.steps) for place in places}
    own = [(number, way) for number, way in enumerate(book.ways) if way.phase not in WAITING]
    columns = book.columns()
    for at, step in enumerate(book.steps):
        for unit, row in enumerate(step.beyond_ns):
            for number, way in own:
                beyond[unit, way.phase][at] += row[number]
        for ways in columns:
            last, lead_ns = last_of(step, ways)
            for number in ways:
                phase, longer_ns = book.ways[number].phase, step.beyond_ns[last][number]
                if phase not in WAITING and longer_ns > 0:
                    gain[last, phase][at] += min(longer_ns, lead_ns)
    return Lateness(beyond, gain)


def last_of(step: Step, columns: Iterable[int]) -> tuple[int, int]:
    """Which unit arrives last, and by how much behind the one before it."""
    arrivals = [sum(row[column] for column in columns) for row in step.own_ns]
    last = max(range(len(arrivals)), key=arrivals.__getitem__)
    return last, arrivals[last] - max(ns for unit, ns in enumerate(arrivals) if unit != last)
