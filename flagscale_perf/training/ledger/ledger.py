"""The ledger of one pipeline stage: rows that add up to its mean step, to the nanosecond.

Between two cuts the stage takes as long as its last unit works and then waits: what all units wait for is the
exchange. What the last unit works beyond the others is either a named lateness or random variation of all
ranks. The rest is what a usual unit does. docs/formulas.md, "The ledger", has the derivation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flagscale_perf.spine.averages import deviation, median
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.training.ledger.book import (
    Book,
    Lateness,
    Place,
    Step,
    book_of,
    last_of,
    lateness_of,
    weighed,
)
from flagscale_perf.training.ledger.naming import Late, late_units
from flagscale_perf.training.ledger.slowest import SlowestStep, slowest_of
from flagscale_perf.training.phases import PHASES, TABLE, Kind
from flagscale_perf.training.rank_records import CutsRecord
from flagscale_perf.training.sample import Step as CommonStep

MEASURED, SHARED, UNDECIDED = "measured", "shared", "undecided"
BY_PATH, OFF_PATH = "by the critical path", "off the critical path"
SHARED_BELOW = 0.5  # of its lateness is what a unit gains alone: others are as late
BLOCK = 5  # steps; what lies further apart is taken to be independent
DEVIATIONS = 2


@dataclass(frozen=True)
class LateRow:
    """A unit that is late in a phase, and what that costs. Times are sums over the ledger's steps.

    Attributes:
        pattern, usual_ns, distance: as in `naming.Late`.
        first_iteration, iteration: the first and the last step that it concerns.
        steps: how many these are.
        last_in: in how many of all steps others waited for it because of this.
        cost_ns: what all late units together cost, its part of it.
        alone_ns: by how much sooner the steps would end if this one alone were not late.
        least_ns, most_ns: of the price, by how it differs from step to step.
        label: "measured"; "shared": another unit is as late, and only both together gain; "undecided": the
            phase may hold waiting, or the unit has several ranks; "by the critical path": what the job
            gains without it is known from captured steps of the whole pipeline; "off the critical path": the
            same, and it cannot be told from nothing.
    """

    ranks: tuple[int, ...]
    phase: str
    pattern: str
    usual_ns: int
    distance: int | None
    first_iteration: int
    iteration: int
    steps: int
    last_in: int
    cost_ns: int
    alone_ns: int
    least_ns: int
    most_ns: int
    label: str

    @property
    def price_ns(self) -> int:
        """What the job gains without this lateness. `cost_ns` is what its stage waits, which is more where
        other stages of a pipeline would hold the step up as well.
        """
        return self.alone_ns if self.label in (BY_PATH, OFF_PATH) else self.cost_ns


class Wait(NamedTuple):
    """A unit's wait in a phase, split by cause; the parts add up to it.

    Attributes:
        exchange_ns: the exchange itself, with no unit late; the same for all units.
        late_ns: waiting for named late units.
        in_turns_ns: waiting for whichever unit happened to come last.
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


class Row(NamedTuple):
    """A row of a ledger.

    Attributes:
        kind: "late", "base", "exchange", "in turns" or "residual"; see `Ledger`.
        phase: of the first three.
        total_ns: over all steps of the ledger.
        late: the unit that is late.
    """

    kind: str
    phase: str | None
    total_ns: int
    late: LateRow | None = None


@dataclass(frozen=True)
class Ledger:
    """The ledger of one stage. Times are sums over its steps; the rows add up to `total_ns`.

    Attributes:
        stage: place in the pipeline, from 0.
        units, steps: how many were compared.
        left_out: steps with other cuts than these.
        first_iteration, iteration: the first and the last step.
        total_ns: the first unit's time from cut to cut.
        base_ns: what a usual unit does, by phase.
        late: named units, the costliest first.
        in_turns_ns: random variation of all ranks: what it costs that the last of several comes last.
        exchange_ns: by phase, the wait of the last unit, which waits for no other.
        residual_ns: what units whose cuts are one moment differ by all the same.
        common: the steps without lateness: what all units have in common.
        slowest: the longest steps and why, the longest first.
        ranks: every unit's phases, in which waits are told apart by the rows above; one usual unit's where
            not all of them are recorded.
    """

    stage: int
    units: int
    steps: int
    left_out: int
    first_iteration: int
    iteration: int
    total_ns: int
    base_ns: Mapping[str, int]
    late: Sequence[LateRow]
    in_turns_ns: int
    exchange_ns: Mapping[str, int]
    residual_ns: int
    common: Sequence[CommonStep]
    slowest: Sequence[SlowestStep]
    ranks: Sequence[UnitTimes]

    @property
    def rows(self) -> list[Row]:
        """Every row, also those that took no time; they add up to `total_ns`."""
        return [
            *(Row("late", row.phase, row.cost_ns, row) for row in self.late),
            *(Row("base", phase, ns) for phase, ns in self.base_ns.items()),
            *(Row("exchange", phase, ns) for phase, ns in self.exchange_ns.items()),
            Row("in turns", None, self.in_turns_ns),
            Row("residual", None, self.residual_ns),
        ]

    @property
    def late_ns(self) -> int:
        """The cost of all late units together."""
        return sum(row.cost_ns for row in self.late)

    def share(self, part_ns: float) -> float:
        """A part of the time of all steps, as a share of it."""
        return part_ns / max(1, self.total_ns)

    def step_ms(self, part_ns: float) -> float:
        """Milliseconds of a mean step, of what is a sum over all of them."""
        return part_ns / self.steps / NS_PER_MS


def ledger_of(records: Sequence[CutsRecord]) -> Ledger | None:
    """The ledger of one stage's records; None unless two units were recorded side by side."""
    book = book_of(records)
    if book is None:
        return None
    lateness = lateness_of(book)
    times_ns = [step.dur_ns for step in book.steps]
    total_ns = sum(times_ns)
    late = late_units(book, lateness, median(times_ns))
    entries = _Entries(book, late)
    rows = _rows_of(book, lateness, late, entries.late_ns)
    base_ns = {PHASES[phase]: ns for phase, ns in sorted(entries.base_ns.items())}
    exchange_ns = {PHASES[phase]: ns for phase, ns in sorted(entries.exchange_ns.items())}
    known_ns = sum(base_ns.values()) + sum(exchange_ns.values()) + entries.in_turns_ns + entries.late_ns
    return Ledger(
        stage=records[0].stage,
        units=records[0].units,
        steps=len(book.steps),
        left_out=book.left_out,
        first_iteration=book.steps[0].iteration,
        iteration=book.steps[-1].iteration,
        total_ns=total_ns,
        base_ns=base_ns,
        late=sorted(rows, key=lambda row: -row.cost_ns),
        in_turns_ns=entries.in_turns_ns,
        exchange_ns=exchange_ns,
        residual_ns=total_ns - known_ns,
        common=entries.common,
        slowest=slowest_of(book, lateness, entries.common, times_ns),
        ranks=entries.ranks(),
    )


class _Entries:
    """Every step booked without what the late units take longer.

    Attributes:
        base_ns, exchange_ns: by phase.
        in_turns_ns, late_ns, common: as in `Ledger`.
    """

    def __init__(self, book: Book, late: Sequence[Late]) -> None:
        self.base_ns: dict[int, int] = defaultdict(int)
        self.exchange_ns: dict[int, int] = defaultdict(int)
        self.in_turns_ns = self.late_ns = 0
        self.common: list[CommonStep] = []
        self._book = book
        self._columns = book.columns()
        self._units = book.units if book.is_whole else [()]
        self._own_ns: list[dict[int, int]] = [defaultdict(int) for _ in self._units]
        self._waits_ns: list[dict[int, list[int]]] = [defaultdict(lambda: [0] * 4) for _ in self._units]
        late_at: dict[int, set[Place]] = defaultdict(set)
        for one in late:
            for at in one.at:
                late_at[at].add(one.place)
        for at, step in enumerate(book.steps):
            self._add(step, late_at[at])

    def _add(self, step: Step, late: set[Place]) -> None:
        phases_ns = [0] * len(PHASES)
        for cut, columns in enumerate(self._columns):
            last, _ = last_of(step, columns)
            whole_ns = sum(step.own_ns[last][column] for column in columns)
            rows = [self._without(step, row, columns, late) for row in range(len(step.units))]
            arrivals = list(map(sum, rows))
            order = sorted(weighed(len(rows), step.others), key=arrivals.__getitem__)
            usual = order[(len(order) - 1) // 2]
            self.late_ns += whole_ns - arrivals[order[-1]]
            self.in_turns_ns += arrivals[order[-1]] - arrivals[usual]
            self._project(step, cut, last, whole_ns - arrivals[order[-1]])
            for column, own_ns in zip(columns, rows[usual], strict=True):
                phases_ns[self._book.ways[column].phase] += own_ns
                self.base_ns[self._book.ways[column].phase] += own_ns
            phase, wait_ns = self._book.waits[cut], step.wait_ns[last][cut]
            phases_ns[phase] += wait_ns
            self.exchange_ns[phase] += wait_ns
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

    def ranks(self) -> list[UnitTimes]:
        return [
            UnitTimes(
                ranks,
                {PHASES[phase]: ns for phase, ns in own_ns.items()},
                {PHASES[phase]: Wait(*parts) for phase, parts in waits_ns.items()},
            )
            for ranks, own_ns, waits_ns in zip(self._units, self._own_ns, self._waits_ns, strict=True)
        ]

    def _without(self, step: Step, row: int, columns: Sequence[int], late: set[Place]) -> list[int]:
        own, beyond, unit = step.own_ns[row], step.beyond_ns[row], step.units[row]
        if not late:
            return [own[column] for column in columns]
        return [
            own[column] - (max(0, beyond[column]) if (unit, self._book.ways[column].phase) in late else 0)
            for column in columns
        ]


class _Gain(NamedTuple):
    """What the step would gain without one late unit.

    Attributes:
        sum_ns: over all steps.
        spread_ns: standard error of that.
        steps: how many have any of it.
        longer_ns: how much longer the unit takes in its late steps.
        is_shared: others are as late.
    """

    sum_ns: int
    spread_ns: float
    steps: int
    longer_ns: int
    is_shared: bool


def _rows_of(book: Book, lateness: Lateness, late: Sequence[Late], together_ns: int) -> list[LateRow]:
    gains = [_gain_of(one, lateness, late) for one in late]
    rows = []
    for one, gain, cost_ns in zip(late, gains, _divided(gains, together_ns), strict=True):
        either_ns = DEVIATIONS * gain.spread_ns + (abs(cost_ns - gain.sum_ns) if gain.is_shared else 0)
        at = [book.steps[place].iteration for place in one.at]
        rows.append(
            LateRow(
                ranks=book.units[one.unit],
                phase=PHASES[one.phase],
                pattern=one.pattern,
                usual_ns=one.usual_ns,
                distance=one.distance,
                first_iteration=at[0],
                iteration=at[-1],
                steps=len(at),
                last_in=gain.steps,
                cost_ns=cost_ns,
                alone_ns=gain.sum_ns,
                least_ns=max(0, round(cost_ns - either_ns)),
                most_ns=round(cost_ns + either_ns),
                label=_label(one, book, gain.is_shared),
            )
        )
    return rows


def _gain_of(one: Late, lateness: Lateness, late: Sequence[Late]) -> _Gain:
    """The gain without one late unit, in its own steps. Where a unit late in single steps and one late in all
    share a step, the single one is charged with what is beyond the usual.
    """
    gain, at = lateness.gain_ns.get(one.place, {}), sorted(set(one.at))
    beside = [other for other in late if other.place == one.place and other is not one]
    own = []
    for place in at:
        part_ns = gain.get(place, 0)
        for other in beside:
            if one.pattern in ("periodic", "bursts", "single"):
                part_ns -= min(gain.get(place, 0), max(0, other.usual_ns))
            elif place in other.at:
                part_ns = min(gain.get(place, 0), max(0, one.usual_ns))
        own.append(part_ns)
    blocks = [sum(own[start : start + BLOCK]) for start in range(0, len(own), BLOCK)]
    spread = deviation(blocks) * math.sqrt(len(blocks))
    longer_ns = max(0, one.usual_ns) * len(one.at)
    is_shared = len(late) > 1 and sum(own) < SHARED_BELOW * longer_ns
    return _Gain(sum(own), spread, sum(part_ns > 0 for part_ns in own), longer_ns, is_shared)


def _divided(gains: Sequence[_Gain], together_ns: int) -> list[int]:
    """The cost of all late units together, divided among them; the parts add up. A unit is charged with what
    the step gains without it alone; what is gained only without several, with those as late as another.
    """
    if not gains:
        return []
    alone = [gain.sum_ns for gain in gains]
    if together_ns < sum(alone):
        costs, weights = [0] * len(gains), alone
    else:
        costs, weights = alone, [gain.longer_ns if gain.is_shared else 0 for gain in gains]
        weights = weights if any(weights) else [gain.longer_ns for gain in gains]
    rest_ns, whole = together_ns - sum(costs), sum(weights) or 1
    costs = [ns + int(rest_ns * weight / whole) for ns, weight in zip(costs, weights, strict=True)]
    largest = max(range(len(costs)), key=costs.__getitem__)
    costs[largest] += together_ns - sum(costs)
    return costs


def _label(one: Late, book: Book, is_shared: bool) -> str:
    may_wait = TABLE[PHASES[one.phase]].kind is Kind.BOTH
    if may_wait or len(book.units[one.unit]) > 1:
        return UNDECIDED
    return SHARED if is_shared else MEASURED
