"""Every step of a stage booked: without what late units take longer, and as if batches were even."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flagscale_perf.spine.averages import deviation
from flagscale_perf.training.ledger.book import Book, Place, Step, last_of, weighed
from flagscale_perf.training.ledger.division import DEVIATIONS, Inside, Speed, surplus_of
from flagscale_perf.training.ledger.naming import Late
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.sample import Step as CommonStep

OwnLateness = Mapping[Place, Mapping[int, int]]  # see `naming.own_lateness`

BLOCK = 5  # steps; what lies further apart is taken to be independent


class Wait(NamedTuple):
    """A unit's wait in a phase, split by cause; the parts add up to it.

    Attributes:
        exchange_ns: the exchange itself, with no unit late; the same for all units.
        late_ns: waiting for named late units.
        in_turns_ns: waiting for whichever unit happened to come last, uneven batches included.
        residual_ns: difference between the ends of its waits and those of the last unit.
    """

    exchange_ns: int
    late_ns: int
    in_turns_ns: int
    residual_ns: int


class UnitTimes(NamedTuple):
    """A unit's steps by phase: what it did by itself, and its waits.

    Attributes:
        ranks: of the unit; none for a usual one where not all of them are recorded.
        own_ns, waits: by phase.
    """

    ranks: tuple[int, ...]
    own_ns: Mapping[str, int]
    waits: Mapping[str, Wait]


class Uneven(NamedTuple):
    """What uneven batches cost over all steps, between which two, and in how many steps they do."""

    cost_ns: int = 0
    least_ns: int = 0
    most_ns: int = 0
    steps: int = 0

    def plus(self, inside: Inside) -> Uneven:
        """With what is waited for inside the layers, now for one and now for another."""
        return Uneven(
            self.cost_ns + inside.cost_ns,
            self.least_ns + inside.least_ns,
            self.most_ns + inside.most_ns,
            max(self.steps, len(inside.at)),
        )


class Turns(NamedTuple):
    """What it costs that the last of several comes last in a phase.

    Attributes:
        total_ns: by how much it takes longer than a usual one.
        most_ns: of that the unit that costs most.
        gain_ns: of that, what a step gains without it: the one before the last comes then.
    """

    total_ns: int
    most_ns: int
    gain_ns: int


def entries_of(
    book: Book, late: Sequence[Late], own: OwnLateness, speeds: Mapping[int, Speed]
) -> tuple[Entries, Uneven]:
    """What uneven batches cost is told apart where it is surely more than nothing. `own`: of the late."""
    if speeds:
        entries = Entries(book, late, own, speeds)
        cost_ns, spread_ns = sum(entries.uneven_ns), spread_of(entries.uneven_ns)
        low, high = (
            sum(getattr(speed, name) for speed in speeds.values()) / sum(each.ns for each in speeds.values())
            for name in ("least_ns", "most_ns")
        )
        least_ns = round(cost_ns * low - DEVIATIONS * spread_ns)
        if least_ns > 0:
            most_ns = round(cost_ns * high + DEVIATIONS * spread_ns)
            return entries, Uneven(cost_ns, least_ns, most_ns, sum(ns > 0 for ns in entries.uneven_ns))
    return Entries(book, late, own, {}), Uneven()


def spread_of(steps_ns: Sequence[int]) -> float:
    """The standard error of the sum."""
    blocks = [sum(steps_ns[start : start + BLOCK]) for start in range(0, len(steps_ns), BLOCK)]
    return deviation(blocks) * math.sqrt(len(blocks))


class Entries:
    """Every step booked without what the late units take longer, and as if all units had as much to do.

    Attributes:
        base_ns, exchange_ns: by phase.
        uneven_ns, in_turns_ns: of each step.
        late_ns, common: as in `Ledger`.
    """

    def __init__(
        self, book: Book, late: Sequence[Late], own: OwnLateness, speeds: Mapping[int, Speed]
    ) -> None:
        self.base_ns: dict[int, int] = defaultdict(int)
        self.exchange_ns: dict[int, int] = defaultdict(int)
        self.uneven_ns: list[int] = []
        self.in_turns_ns: list[int] = []
        self._turns_ns: dict[int, dict[int | None, int]] = defaultdict(lambda: defaultdict(int))
        self._turns_gain_ns: dict[int, int] = defaultdict(int)
        self.late_ns = 0
        self._speeds = speeds
        self.common: list[CommonStep] = []
        self._book = book
        self._columns = book.columns()
        self._units = book.units if book.is_whole else [()]
        self._own_ns: list[dict[int, int]] = [defaultdict(int) for _ in self._units]
        self._waits_ns: list[dict[int, list[int]]] = [defaultdict(lambda: [0] * 4) for _ in self._units]
        late_at: dict[int, dict[Place, int | None]] = defaultdict(dict)
        for one in late:
            for at in one.at:
                late_at[at][one.place] = own.get(one.place, {}).get(at)
        for at, step in enumerate(book.steps):
            self._add(step, self._shares(step, late_at[at]))

    def _shares(self, step: Step, late: Mapping[Place, int | None]) -> dict[Place, float]:
        """Of late units the part of their lateness that is their own, of all cuts together."""
        found = {}
        for (unit, phase), own_ns in late.items():
            row = step.beyond_ns[step.units.index(unit)] if unit in step.units else []
            beyond_ns = sum(
                max(0, ns) for way, ns in zip(self._book.ways, row, strict=False) if way.phase == phase
            )
            found[unit, phase] = 1.0 if own_ns is None else min(1.0, max(0, own_ns) / max(1, beyond_ns))
        return found

    def _add(self, step: Step, late: Mapping[Place, float]) -> None:
        phases_ns = [0] * len(PHASES)
        more_ns = surplus_of(self._book, step, self._speeds, late) if self._speeds else None
        uneven_ns = in_turns_ns = 0
        for cut, columns in enumerate(self._columns):
            last, _ = last_of(step, columns)
            whole_ns = sum(step.own_ns[last][column] for column in columns)
            rows = [self._without(step, row, columns, late) for row in range(len(step.units))]
            late_ns = whole_ns - max(map(sum, rows))
            self.late_ns += late_ns
            self._project(step, cut, last, late_ns)
            if more_ns is not None:
                rows = [
                    [ns - more[column] for column, ns in zip(columns, row, strict=True)]
                    for row, more in zip(rows, more_ns, strict=True)
                ]
            arrivals = list(map(sum, rows))
            order = sorted(weighed(len(rows), step.others), key=arrivals.__getitem__)
            usual, lead_ns = order[(len(order) - 1) // 2], arrivals[order[-1]] - arrivals[order[-2]]
            uneven_ns += whole_ns - late_ns - arrivals[order[-1]]
            in_turns_ns += arrivals[order[-1]] - arrivals[usual]
            for column, own_ns, last_ns in zip(columns, rows[usual], rows[order[-1]], strict=True):
                phases_ns[self._book.ways[column].phase] += own_ns
                self.base_ns[self._book.ways[column].phase] += own_ns
                self._turns_ns[self._book.ways[column].phase][step.units[order[-1]]] += last_ns - own_ns
                self._turns_gain_ns[self._book.ways[column].phase] += max(0, min(last_ns - own_ns, lead_ns))
            phase, wait_ns = self._book.waits[cut], step.wait_ns[last][cut]
            phases_ns[phase] += wait_ns
            self.exchange_ns[phase] += wait_ns
        self.uneven_ns.append(uneven_ns)
        self.in_turns_ns.append(in_turns_ns)
        self.common.append(CommonStep(step.iteration, sum(phases_ns), 0, 0, None, tuple(phases_ns)))

    def _project(self, step: Step, cut: int, last: int, late_ns: int) -> None:
        """Books a cut for every unit: its own way to it, and what its wait is made of."""
        columns, phase = self._columns[cut], self._book.waits[cut]
        last_ns = sum(step.own_ns[last][column] for column in columns)
        for number, (own_ns, waits_ns) in enumerate(zip(self._own_ns, self._waits_ns, strict=True)):
            row, wait_ns = step.own_ns[number], step.wait_ns[number][cut]
            if not self._book.is_whole:
                beyond = step.beyond_ns[number]
                wait_ns += sum(beyond[column] for column in columns)
                row = [ns - longer_ns for ns, longer_ns in zip(row, beyond, strict=True)]
            for column in columns:
                own_ns[self._book.ways[column].phase] += row[column]
            lead_ns = last_ns - sum(row[column] for column in columns)
            exchange_ns, for_late_ns = step.wait_ns[last][cut], min(lead_ns, late_ns)
            parts = (exchange_ns, for_late_ns, lead_ns - for_late_ns, wait_ns - exchange_ns - lead_ns)
            waits_ns[phase] = [ns + part for ns, part in zip(waits_ns[phase], parts, strict=True)]

    def turns(self) -> dict[str, Turns]:
        """By the phase in which the last one takes longer than a usual one; all of them are `in_turns_ns`."""
        return {
            PHASES[phase]: Turns(sum(by_unit.values()), max(by_unit.values()), self._turns_gain_ns[phase])
            for phase, by_unit in self._turns_ns.items()
        }

    def ranks(self) -> list[UnitTimes]:
        """Every unit's phases; a usual one's where not all of them are recorded."""
        return [
            UnitTimes(
                ranks,
                {PHASES[phase]: ns for phase, ns in own_ns.items()},
                {PHASES[phase]: Wait(*parts) for phase, parts in waits_ns.items()},
            )
            for ranks, own_ns, waits_ns in zip(self._units, self._own_ns, self._waits_ns, strict=True)
        ]

    def _without(
        self, step: Step, row: int, columns: Sequence[int], late: Mapping[Place, float]
    ) -> list[int]:
        own, beyond, unit = step.own_ns[row], step.beyond_ns[row], step.units[row]
        if not late or unit is None:
            return [own[column] for column in columns]
        shares = [late.get((unit, self._book.ways[column].phase), 0.0) for column in columns]
        return [
            own[column] - round(share * max(0, beyond[column]))
            for column, share in zip(columns, shares, strict=True)
        ]
