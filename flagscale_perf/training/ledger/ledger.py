"""The ledger of one pipeline stage: rows that add up to its mean step, to the nanosecond.

Between two cuts the stage takes as long as its last unit works and then waits: what all units wait for is the
exchange. What the last unit works beyond the others is either a named lateness or random variation of all
ranks. The rest is what a usual unit does. docs/formulas.md, "The ledger", has the derivation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from flagscale_perf.spine.averages import median
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.limits import CAUSE
from flagscale_perf.training.ledger.book import Book, Lateness, book_of, lateness_of
from flagscale_perf.training.ledger.division import DEVIATIONS, EXPERTS, Division, Inside, Part
from flagscale_perf.training.ledger.entries import (
    OwnLateness,
    Turns,
    Uneven,
    UnitTimes,
    entries_of,
    spread_of,
)
from flagscale_perf.training.ledger.naming import EVENTS, Late, late_units, own_lateness
from flagscale_perf.training.ledger.slowest import SlowestStep, slowest_of
from flagscale_perf.training.phases import PHASES, TABLE, Kind
from flagscale_perf.training.rank_records import CutsRecord
from flagscale_perf.training.sample import Step as CommonStep

UNEVEN = "uneven batches"
MEASURED, SHARED, UNDECIDED = "measured", "shared", "undecided"
INSIDE = "inside the layers"
BY_PATH, OFF_PATH = "by the critical path", "off the critical path"
SHARED_BELOW = 0.5  # of its lateness is what a unit gains alone: others are as late
SURELY = 2 / 3  # of a cost: so much of it the named cause explains at the worse end of its interval, too


def cause_of(share: float, least: float, most: float) -> str | None:
    """The cause of a lateness of which more work explains that share, between these two: see `LateRow`."""
    if share >= CAUSE and least >= SURELY:
        return "work"
    if 1 - share >= CAUSE and 1 - most >= SURELY:
        return "speed"
    return "both" if most < CAUSE and 1 - least < CAUSE else None


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
        more_work_ns: the part of the cost that more work explains, the rest is slower at equal work; None
            where the work is not known, or a longer time in this phase need not come from more of it.
        more_work_least_ns, more_work_most_ns: of that part, by how well the time of more work is known.
        work_ratio: its work against the others'; None like the part.
        work_speed: how the time of more work is known, see `division.Speed`; None also where work is equal.
        work_kind: what it has more of, see `division.Part`.
        label: "measured"; "shared": another unit is as late, and only both together gain; "undecided": the
            phase may hold waiting, or the unit has several ranks; "by the critical path": what the job
            gains without it is known from captured steps of the whole pipeline; "off the critical path": the
            same, and it cannot be told from nothing; "inside the layers": the others wait for its experts
            there, and take as long.
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
    more_work_ns: int | None = None
    more_work_least_ns: int | None = None
    more_work_most_ns: int | None = None
    work_ratio: float | None = None
    work_speed: str | None = None
    work_kind: str | None = None

    @property
    def more_work(self) -> tuple[float, float, float] | None:
        """The share that more work has of the cost, and between which two shares it lies."""
        if self.more_work_ns is None or self.cost_ns <= 0:
            return None
        parts_ns = (self.more_work_ns, self.more_work_least_ns or 0, self.more_work_most_ns or 0)
        share, least, most = (part_ns / self.cost_ns for part_ns in parts_ns)
        return share, least, most

    @property
    def cause(self) -> str | None:
        """What explains at least `CAUSE` of the cost, and surely more than anything else: "work" or "speed";
        "both" where neither can; None where that is not known.
        """
        return None if (part := self.more_work) is None else cause_of(*part)

    @property
    def is_replayed(self) -> bool:
        """Whether captured steps tell its price."""
        return self.label in (BY_PATH, OFF_PATH)

    @property
    def price_ns(self) -> int:
        """What the job gains without this lateness. `cost_ns` is what its stage waits, which is more where
        other stages of a pipeline would hold the step up as well.
        """
        return self.alone_ns if self.is_replayed else self.cost_ns


class Row(NamedTuple):
    """A row of a ledger.

    Attributes:
        kind: "late", "base", "exchange", "uneven batches", "in turns" or "residual"; see `Ledger`.
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
        left_out: steps with other cuts or units than these.
        first_iteration, iteration: the first and the last step.
        total_ns: the first unit's time from cut to cut.
        base_ns: what a usual unit does, by phase.
        late: named units, the costliest first.
        uneven: what it costs that batches differ, beside the late units: by how much sooner the last would
            come if all units had as much to do. Nothing where that cannot be told from nothing.
        in_turns_ns: random variation of all ranks: what it costs that the last of several comes last.
        turns: the same by the phase in which the last one takes longer than a usual one.
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
    uneven: Uneven
    in_turns_ns: int
    turns: Mapping[str, Turns]
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
            Row(UNEVEN, None, self.uneven.cost_ns),
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


def ledger_of(
    records: Sequence[CutsRecord],
    work_flops: Mapping[str, float] | None = None,
    has_divided_experts: bool = False,
) -> Ledger | None:
    """The ledger of one stage's records; None unless two units were recorded side by side. `work_flops`: as
    in `RunFacts`; without it nothing is said of work. `has_divided_experts`: units wait for one another's in
    each layer (expert parallel).
    """
    book = book_of(records, work_flops)
    if book is None:
        return None
    lateness = lateness_of(book)
    times_ns = [step.dur_ns for step in book.steps]
    total_ns = sum(times_ns)
    has_unseen = has_divided_experts and "expert_tokens" in (work_flops or {}) and not book.has_expert_work
    division = Division(book, lateness, may_assume=not has_unseen)
    late = late_units(book, lateness, median(times_ns), division.explained)
    own = own_lateness(late, lateness)
    entries, uneven = entries_of(book, late, own, division.common_speeds())
    gains = [_gain_of(one, _gain_ns(one, lateness, own), late) for one in late]
    costs_ns = _divided(gains, entries.late_ns)
    rows = [
        _with_work(_row_of(book, *each), division.part(each[0].place, each[0].at))
        for each in zip(late, gains, costs_ns, strict=True)
    ]
    for each in division.inside() if has_divided_experts else ():
        entries.base_ns[each.phase] -= each.cost_ns
        if each.unit is None:
            uneven = uneven.plus(each)
        else:
            rows.append(_inside(book, each, each.unit))
    base_ns = {PHASES[phase]: ns for phase, ns in sorted(entries.base_ns.items())}
    exchange_ns = {PHASES[phase]: ns for phase, ns in sorted(entries.exchange_ns.items())}
    in_turns_ns = sum(entries.in_turns_ns)
    known_ns = (
        sum(base_ns.values()) + sum(exchange_ns.values()) + in_turns_ns + sum(row.cost_ns for row in rows)
    )
    return Ledger(
        stage=records[0].stage,
        units=max(record.units for record in records),
        steps=len(book.steps),
        left_out=book.left_out,
        first_iteration=book.steps[0].iteration,
        iteration=book.steps[-1].iteration,
        total_ns=total_ns,
        base_ns=base_ns,
        late=sorted(rows, key=lambda row: -row.cost_ns),
        uneven=uneven,
        in_turns_ns=in_turns_ns,
        turns=entries.turns(),
        exchange_ns=exchange_ns,
        residual_ns=total_ns - known_ns - uneven.cost_ns,
        common=entries.common,
        slowest=slowest_of(book, lateness, entries.common, times_ns),
        ranks=entries.ranks(),
    )


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


def _row_of(book: Book, one: Late, gain: _Gain, cost_ns: int) -> LateRow:
    either_ns = DEVIATIONS * gain.spread_ns + (abs(cost_ns - gain.sum_ns) if gain.is_shared else 0)
    at = [book.steps[place].iteration for place in one.at]
    return LateRow(
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


def _inside(book: Book, each: Inside, unit: int) -> LateRow:
    """The row of a unit for whose experts the others wait: their phases take as long as its own."""
    late = Late(unit, each.phase, "constant", each.at, each.cost_ns // len(each.at))
    gain = _Gain(each.cost_ns, 0.0, len(each.at), 0, False)
    row = replace(_row_of(book, late, gain, each.cost_ns), label=INSIDE)
    row = replace(row, least_ns=each.least_ns, most_ns=each.most_ns)
    return _with_work(row, Part(1.0, 1.0, 1.0, each.ratio, each.source, EXPERTS))


def _with_work(row: LateRow, part: Part | None) -> LateRow:
    if part is None:
        return row
    shares = part.share, part.least, part.most
    share_ns, least_ns, most_ns = (round(row.cost_ns * share) for share in shares)
    return replace(
        row,
        more_work_ns=share_ns,
        more_work_least_ns=least_ns,
        more_work_most_ns=most_ns,
        work_ratio=part.ratio,
        work_speed=part.source,
        work_kind=part.kind,
    )


def _gain_ns(one: Late, lateness: Lateness, own: OwnLateness) -> dict[int, int]:
    """What each of its steps would gain without what is its own of a unit's lateness."""
    limits = own.get(one.place, {})
    gain_ns = lateness.gain_ns.get(one.place, {})
    return {at: min(ns, max(0, limits.get(at, ns))) for at, ns in gain_ns.items()}


def _gain_of(one: Late, gain: Mapping[int, int], late: Sequence[Late]) -> _Gain:
    """The gain without one late unit, in its own steps. Where a unit late in single steps and one late in all
    share a step, the single one is charged with what is beyond the usual.
    """
    at = sorted(set(one.at))
    beside = [other for other in late if other.place == one.place and other is not one]
    own = []
    for place in at:
        part_ns = gain.get(place, 0)
        for other in beside:
            if one.pattern in EVENTS:
                part_ns -= min(gain.get(place, 0), max(0, other.usual_ns))
            elif place in other.at:
                part_ns = min(gain.get(place, 0), max(0, one.usual_ns))
        own.append(part_ns)
    longer_ns = max(0, one.usual_ns) * len(one.at)
    is_shared = len(late) > 1 and sum(own) < SHARED_BELOW * longer_ns
    return _Gain(sum(own), spread_of(own), sum(part_ns > 0 for part_ns in own), longer_ns, is_shared)


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
