"""The recorded cuts of one pipeline stage as a table of units, steps and columns, and who came last."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import sub
from typing import NamedTuple

from flagscale_perf.spine.averages import median
from flagscale_perf.training.ledger.cuts import WAITING
from flagscale_perf.training.ledger.load import Kinds, Load, kinds_of, loads_of
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
    """One step of all units: a row for each that was recorded, behind one for all others, if there are any.

    Attributes:
        units: of each row, its place in `Book.units`; None for the row of the others.
        others: how many these stand for.
        own_ns: for each row a value for each column.
        wait_ns: for each row a value for each cut.
        beyond_ns: for each row and column, by how much it is longer than the median of the other units.
        loads: what each row has to do; None where that is not known.
    """

    iteration: int
    units: list[int | None]
    others: int
    own_ns: list[list[int]]
    wait_ns: list[list[int]]
    beyond_ns: list[list[int]]
    loads: list[Load] | None = None

    @property
    def dur_ns(self) -> int:
        """The step's duration: the first row from the last cut of the step before to the last of this one."""
        return sum(self.own_ns[0]) + sum(self.wait_ns[0])


class Book(NamedTuple):
    """The steps of a stage that have the same cuts.

    Attributes:
        units: in the order of their rows.
        waits: the phase of the wait at each cut.
        ways: the columns, those of one cut beside one another.
        steps: by iteration.
        left_out: how many steps have other cuts, or other units.
        is_whole: whether every unit was recorded in every step.
    """

    units: list[Unit]
    waits: list[int]
    ways: list[Way]
    steps: list[Step]
    left_out: int
    is_whole: bool

    @property
    def has_expert_work(self) -> bool:
        """Whether it is known what experts have to do."""
        return any(load.expert_flops for step in self.steps for load in step.loads or ())

    def own_phases(self) -> list[int]:
        """The phases in which a unit can be late by its own doing."""
        return sorted({way.phase for way in self.ways} - WAITING)

    def columns(self) -> list[range]:
        """The columns that lead to each cut."""
        ends = list(accumulate(sum(way.cut == cut for way in self.ways) for cut in range(len(self.waits))))
        return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def book_of(records: Sequence[CutsRecord], work_flops: Mapping[str, float] | None = None) -> Book | None:
    """None where no two units were recorded side by side. Records with unknown phases are left out.
    `work_flops`: as in `RunFacts`.
    """
    alike = _alike(records)
    units = sorted({unit for record in alike for unit, *_ in rows_of(record) if unit})
    if len(units) < 2:
        return None
    whole = [record for record in alike if len(record.sizes) == len(units) and 0 not in record.sizes]
    if 2 * len(whole) >= len(alike):
        alike = whole  # a step that lacks a unit, as overloaded machines lose them, tells nothing of that one
    columns = sorted({column for record in alike for column in record.columns})
    ways = [Way(*divmod(column, PHASE_BASE)) for column in columns]
    book = Book(units, alike[0].waits, ways, [], len(records) - len(alike), len(whole) == len(alike))
    numbers = {unit: number for number, unit in enumerate(units)}
    kinds = kinds_of(alike, work_flops)
    book.steps.extend(_step_of(record, book, numbers, kinds) for record in alike)
    return _without_false_cuts(book)


def _alike(records: Sequence[CutsRecord]) -> list[CutsRecord]:
    """The records with the most frequent sequence of cuts and number of units, by iteration: units that were
    not found yet, or no more, need not be like the others.
    """
    by_cuts: dict[tuple[int, ...], list[CutsRecord]] = defaultdict(list)
    for record in records:
        if _has_known_phases(record):
            by_cuts[(record.units, *record.waits)].append(record)
    alike = max(by_cuts.values(), key=len, default=[])
    return sorted(alike, key=lambda record: record.iteration)


def _has_known_phases(record: CutsRecord) -> bool:
    phases = [*record.waits, *(column % PHASE_BASE for column in record.columns)]
    return all(0 <= phase < len(PHASES) for phase in phases)


def rows_of(record: CutsRecord) -> Iterator[tuple[Unit, list[int], list[int]]]:
    """The rows of a step: the ranks of each, its values and its waits."""
    columns, cuts, rank = len(record.columns), len(record.waits), 0
    for row, size in enumerate(record.sizes):
        unit = tuple(record.ranks[rank : rank + size])
        rank += size
        yield (
            unit,
            record.own_ns[row * columns : (row + 1) * columns],
            record.wait_ns[row * cuts : (row + 1) * cuts],
        )


def _step_of(record: CutsRecord, book: Book, numbers: Mapping[Unit, int], kinds: Kinds) -> Step:
    """A unit that was not recorded in this step has what was usual in it, and waits for what is left."""
    found = _in_ways(record, book.ways)
    usual = found.pop((), None)
    at = {unit: row for row, (unit, *_) in enumerate(rows_of(record))}
    places = [at[unit] for unit in sorted(found)]
    units: list[int | None] = [*sorted(numbers[unit] for unit in found)]
    others = max(record.units, len(book.units)) - len(found)
    rows = [found[unit] for unit in sorted(found)]
    middle, wait_ns = usual or rows[0]
    if others:
        left_ns = _left(middle, rows[0] if rows else (middle, wait_ns), book.columns())
        units, rows = [None, *units], [(middle, left_ns), *rows]
        places = [at.get((), places[0] if places else 0), *places]
    own_ns = [own for own, _ in rows]
    if usual is None and not others:
        beyond = _beyond(own_ns, 0)
    else:
        beyond = [list(map(sub, own, middle)) for own in own_ns]
    loads = loads_of(record, kinds, places, places[0] if others else at.get(()))
    return Step(record.iteration, units, others, own_ns, [wait for _, wait in rows], beyond, loads)


def _in_ways(record: CutsRecord, ways: Sequence[Way]) -> dict[Unit, tuple[list[int], list[int]]]:
    place = {column: number for number, column in enumerate(record.columns)}
    at = [place.get(way.cut * PHASE_BASE + way.phase) for way in ways]
    return {
        unit: ([0 if column is None else values[column] for column in at], wait)
        for unit, values, wait in rows_of(record)
    }


def _left(usual: list[int], known: tuple[list[int], list[int]], ways: Sequence[range]) -> list[int]:
    """How long a unit of usual speed waits at each cut, derived from a unit whose row is known."""
    own_ns, wait_ns = known
    return [
        wait + sum(own_ns[column] - usual[column] for column in columns)
        for wait, columns in zip(wait_ns, ways, strict=True)
    ]


def weighed(count: int, others: int) -> list[int]:
    """Every unit's row, of so many: the others' row once for each of them, at most until it is the median."""
    return [0] * (min(others, count + 1) - 1) + list(range(count))


def _beyond(rows: Sequence[list[int]], others: int) -> list[list[int]]:
    every = [rows[row] for row in weighed(len(rows), others)]
    beyond = [[0] * len(rows[0]) for _ in every]
    low, high = (len(every) - 2) // 2, (len(every) - 1) // 2  # places of the median among the others
    for column, values in enumerate(zip(*every, strict=True)):
        order = sorted(range(len(values)), key=values.__getitem__)
        for place, unit in enumerate(order):
            usual = values[order[low + (place <= low)]] + values[order[high + (place <= high)]]
            beyond[unit][column] = values[unit] - usual // 2
    return beyond[len(every) - len(rows) :]


def _without_false_cuts(book: Book) -> Book:
    """A wait that does not end at one moment for all units is no cut: it is time like any other on the way to
    the next one. The last cut stays.
    """
    columns, last = book.columns(), len(book.waits) - 1
    kept = [*(cut for cut in range(last) if _is_one_moment(book, cut, columns[cut])), last]
    if len(kept) == len(book.waits):
        return book
    target = [bisect_left(kept, cut) for cut in range(last + 1)]
    moved = [Way(target[way.cut], way.phase) for way in book.ways]
    waited = {cut: Way(target[cut], book.waits[cut]) for cut in range(last) if cut not in kept}
    ways = sorted({*moved, *waited.values()})

    def own_ns(row: Sequence[int], wait_ns: Sequence[int]) -> list[int]:
        sums: dict[Way, int] = defaultdict(int)
        for way, ns in zip(moved, row, strict=True):
            sums[way] += ns
        for cut, way in waited.items():
            sums[way] += wait_ns[cut]
        return [sums[way] for way in ways]

    steps = []
    for step in book.steps:
        own = list(map(own_ns, step.own_ns, step.wait_ns))
        wait_ns = [[wait[cut] for cut in kept] for wait in step.wait_ns]
        steps.append(step._replace(own_ns=own, wait_ns=wait_ns, beyond_ns=_beyond(own, step.others)))
    return book._replace(waits=[book.waits[cut] for cut in kept], ways=ways, steps=steps)


def _is_one_moment(book: Book, cut: int, columns: range) -> bool:
    arrivals, ends, waits = [], [], []
    for step in book.steps:
        own = [sum(row[column] for column in columns) for row in step.own_ns]
        arrivals.append(max(own) - min(own))
        end = [ns + wait[cut] for ns, wait in zip(own, step.wait_ns, strict=True)]
        ends.append(max(end) - min(end))
        waits.append(min(wait[cut] for wait in step.wait_ns))
    return median(ends) <= moment_ns(median(arrivals), median(waits))


def moment_ns(spread_ns: float, wait_ns: float) -> float:
    """How far ends may lie apart to be one moment; `spread_ns`: of the arrivals, `wait_ns`: least wait."""
    return max(SAME_MOMENT_SHARE * spread_ns, SAME_MOMENT_OF_WAIT * wait_ns, SAME_MOMENT_NS)


class Lateness(NamedTuple):
    """How late every unit is in every phase in which it can be: nanoseconds by the step's place. A step in
    which the unit was not recorded has none.

    Attributes:
        beyond_ns: what it takes longer than the others do, all cuts together.
        gain_ns: by how much sooner the step would end without that, if nothing else changed: no more than
            its lead over the second latest. Only of steps in which it came last.
    """

    beyond_ns: Mapping[Place, Mapping[int, int]]
    gain_ns: Mapping[Place, Mapping[int, int]]


def lateness_of(book: Book) -> Lateness:
    """The lateness of every unit and phase in the book's steps."""
    return Lateness(_beyond_of(book), _gain_of(book))


def _beyond_of(book: Book) -> Mapping[Place, Mapping[int, int]]:
    phases = book.own_phases()
    found = {(unit, phase): defaultdict[int, int](int) for unit in range(len(book.units)) for phase in phases}
    own = [(column, way.phase) for column, way in enumerate(book.ways) if way.phase not in WAITING]
    for at, step in enumerate(book.steps):
        for unit, row in zip(step.units, step.beyond_ns, strict=True):
            if unit is not None:
                for column, phase in own:
                    found[unit, phase][at] += row[column]
    return found


def _gain_of(book: Book) -> Mapping[Place, Mapping[int, int]]:
    found: dict[Place, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    cuts = book.columns()
    for at, step in enumerate(book.steps):
        for columns in cuts:
            last, lead_ns = last_of(step, columns)
            if (unit := step.units[last]) is None:
                continue
            for column in columns:
                phase, longer_ns = book.ways[column].phase, step.beyond_ns[last][column]
                if phase not in WAITING and longer_ns > 0:
                    found[unit, phase][at] += min(longer_ns, lead_ns)
    return found


def filled(found: Mapping[int, int], steps: int) -> list[int]:
    """A value for each step."""
    return [found.get(at, 0) for at in range(steps)]


def last_of(step: Step, columns: Iterable[int]) -> tuple[int, int]:
    """Whose row arrives last, and by how much behind the one before it."""
    arrivals = [sum(row[column] for column in columns) for row in step.own_ns]
    last = max(range(len(arrivals)), key=arrivals.__getitem__)
    before = (ns for row, ns in enumerate(arrivals) if row != last)
    return last, arrivals[last] - max(before, default=arrivals[last])
