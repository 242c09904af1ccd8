"""Divides lateness into more work and slower at the same work. docs/formulas.md, "The ledger", derives it.

How long a unit takes for one FLOP more follows from the steps themselves, where work differs between them:
what a step takes whatever is in it is no work. What all ranks have in common cancels, as a unit is laid
beside the others of the same step.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import mul
from typing import NamedTuple

from flagscale_perf.spine.averages import mean, median, scatter
from flagscale_perf.spine.limits import CAUSE, Limit
from flagscale_perf.training.ledger.book import Book, Lateness, Place, Step
from flagscale_perf.training.ledger.load import Load
from flagscale_perf.training.phases import PHASES

COMPUTING = tuple(map(PHASES.index, ("forward", "backward")))  # what takes longer with more FLOPs
EQUAL = Limit(0.02, "share", "ours: of the others' work; ranks that differ by less have equal work")
KNOWN = Limit(
    0.5, "share", "ours: of the others' time per FLOP; a rank's own slope counts where it is known so well"
)
CONSTANT = Limit(
    0.3, "share", "ours: of a micro-batch's time, what does not grow with it, at most, where no steps tell"
)
BACKWARD_FLOPS = 2  # of the forward pass's, at least: recomputed ones come on top
OUTLIER, LEAST_NS = 4.0, 10_000  # scatters from the line, and at least so much: what else happens in a step
ALIKE = 1e-4  # of a micro-batch's work: steps that differ by no more say nothing
BLOCKS = 10  # of the steps; the slope's error is from leaving each out once
DEVIATIONS = 2

OWN, PEERS, ASSUMED = "its own", "its peers'", "assumed"
DOCUMENTS, MICROBATCHES, EXPERTS = "documents", "micro-batches", "experts"


class Speed(NamedTuple):
    """How long one FLOP more takes.

    Attributes:
        ns, least_ns, most_ns: per FLOP.
        source: whose steps say so; "assumed": work never differs, and time is taken to go with it, but for
            `CONSTANT` of it.
    """

    ns: float
    least_ns: float
    most_ns: float
    source: str


class Part(NamedTuple):
    """The part of a lateness that more work explains.

    Attributes:
        share, least, most: of the lateness, from 0 to 1.
        ratio: the unit's work against the others'.
        source: as in `Speed`; None where the work is equal, or its micro-batches say it.
        kind: what it has more of: for `CAUSE` of that "documents" (longer, or more of them in a
            micro-batch), "micro-batches" or "experts" (their tokens); None for a mixture.
    """

    share: float
    least: float
    most: float
    ratio: float
    source: str | None
    kind: str | None = None


class Inside(NamedTuple):
    """What units wait for the one whose experts have the most, over all steps.

    Attributes:
        unit: which that is, for at least `CAUSE` of it; None where it is now one, now another.
        cost_ns, least_ns, most_ns: of the phase.
        at: places of the steps in which it has the most.
        ratio: its experts' work against the mean.
        source: as in `Speed`.
    """

    unit: int | None
    phase: int
    cost_ns: int
    least_ns: int
    most_ns: int
    at: list[int]
    ratio: float
    source: str


class _Busiest(NamedTuple):
    """Of a step the unit whose experts have the most FLOPs: how many more than the mean, how many times as
    many, and how many it has in all.
    """

    at: int
    unit: int | None
    more: float
    ratio: float
    flops: float


class _Point(NamedTuple):
    """A unit's phase in a step: its own time, and what that is longer than the others'."""

    at: int
    load: Load
    own_ns: int
    longer_ns: int

    @property
    def of_passes_ns(self) -> float:
        """What more micro-batches of the others' size take."""
        return self.own_ns * (1 - self.load.usual_passes / self.load.passes)

    @property
    def longer_pass_ns(self) -> float:
        """How much longer one micro-batch takes."""
        usual_ns = self.own_ns - self.longer_ns
        return self.own_ns / self.load.passes - usual_ns / self.load.usual_passes


class _Sums(NamedTuple):
    """Of values x and y: enough for a line through them."""

    steps: float = 0
    x: float = 0
    y: float = 0
    xx: float = 0
    xy: float = 0

    def plus(self, other: _Sums, sign: int = 1) -> _Sums:
        return _Sums(*(mine + sign * theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def spread(self) -> float:
        return self.xx - self.x * self.x / self.steps if self.steps else 0.0

    @property
    def slope(self) -> float | None:
        return None if self.spread <= 0 else (self.xy - self.x * self.y / self.steps) / self.spread


class Division:
    """Of the lateness in a stage's steps."""

    def __init__(self, book: Book, lateness: Lateness, may_assume: bool = True) -> None:
        """`may_assume`: whether time can be taken to go with FLOPs where no steps tell: not where experts get
        tokens of other ranks, and nobody has counted how many.
        """
        self._may_assume = may_assume
        self._points = _points_of(book, lateness)
        self._steps = max(1, len(book.steps))
        self._lines = {place: self._line_of(points) for place, points in self._points.items()}
        self._book = book

    def part(self, place: Place, steps: Iterable[int]) -> Part | None:
        """Of the lateness of a unit in a phase, in these steps; None where the work is not known, or a longer
        time in this phase need not come from more of it.
        """
        _, phase = place
        points = self._known_of(place, set(steps))
        if not points:
            return None
        ratio = sum(each.load.flops for each in points) / sum(each.load.usual_flops for each in points)
        if phase not in COMPUTING:
            is_equal = abs(ratio - 1) <= EQUAL.value and not any(each.of_passes_ns for each in points)
            return Part(0.0, 0.0, 0.0, ratio, None) if is_equal else None
        return self._part_of_work(place, points, ratio)

    def _part_of_work(self, place: Place, points: Sequence[_Point], ratio: float) -> Part | None:
        longer_ns = sum(point.longer_ns for point in points)
        of_passes_ns = sum(point.of_passes_ns for point in points)
        flops = sum(point.load.more_flops * point.load.usual_passes for point in points)
        speed = self._speed_of(place)
        if speed is None and flops:
            return None
        ns, *both_ns, source = speed or (0.0, 0.0, 0.0, None)
        explained_ns = (of_passes_ns + each * flops for each in (ns, *both_ns))
        share, *ends = (min(1.0, max(0.0, ns / max(1, longer_ns))) for ns in explained_ns)
        kind = _kind_of(of_passes_ns, ns * flops, any(each.load.expert_flops for each in points))
        return Part(share, min(ends), max(ends), ratio, source if flops else None, kind)

    def _known_of(self, place: Place, steps: Collection[int]) -> list[_Point]:
        """The unit's points in these steps; none where its work is known in less than half of them."""
        unit, phase = place
        points = self._points.get((unit, phase if phase in COMPUTING else COMPUTING[0]), ())
        found = [point for point in points if point.at in steps]
        return found if 2 * len(found) > len(steps) else []

    def common_speeds(self) -> dict[int, Speed]:
        """Of all units together, by phase; without those that are not known, or may be nothing."""
        speeds = {phase: _speed_by(self._together(phase, None), PEERS) for phase in COMPUTING}
        return {phase: speed for phase, speed in speeds.items() if speed is not None and speed.least_ns > 0}

    def inside(self) -> Iterator[Inside]:
        """What all units wait, inside their layers, for the one whose experts have the most: how much longer
        all of them take in a phase, the more that one has.
        """
        most = [
            _busiest(at, step) for at, step in enumerate(self._book.steps) if step.loads and not step.others
        ]
        whole = sum(each.more for each in most)
        if 2 * len(most) > self._steps and whole:
            yield from self._inside(most, whole)

    def _inside(self, most: Sequence[_Busiest], whole: float) -> Iterator[Inside]:
        unit, at = _who(most)
        ratio = mean([each.ratio for each in most])
        flops = sum(each.flops for each in most)
        times_ns = [[self._usual_of_all_ns(each.at, phase) for each in most] for phase in COMPUTING]
        assumed = _assumed_of_both(*(sum(of_phase_ns) / flops for of_phase_ns in times_ns))
        for phase, of_phase_ns, speed_if in zip(COMPUTING, times_ns, assumed, strict=True):
            values = [(each.at, each.more, ns) for each, ns in zip(most, of_phase_ns, strict=True)]
            speed = _speed_by(self._line(values, ALIKE * whole / len(most)), OWN) or speed_if
            if speed.least_ns > speed.ns / 2:
                ns, least_ns, most_ns = (round(each * whole) for each in speed[:3])
                yield Inside(unit, phase, ns, least_ns, most_ns, at, ratio, speed.source)

    def explained(self, place: Place) -> dict[int, int]:
        """How much longer more work makes a unit's phase, by the step's place; nothing where not known."""
        points = self._points.get(place, [])
        speed = self._speed_of(place) if points else None
        ns = speed.ns if speed else 0.0
        return {
            point.at: round(point.of_passes_ns + ns * point.load.more_flops * point.load.usual_passes)
            for point in points
        }

    def _usual_of_all_ns(self, at: int, phase: int) -> float:
        columns = [column for column, way in enumerate(self._book.ways) if way.phase == phase]
        return median(sum(row[column] for column in columns) for row in self._book.steps[at].own_ns)

    def _speed_of(self, place: Place) -> Speed | None:
        unit, phase = place
        usual_ns = self._usual_ns(place)
        own, peers = _speed_by(self._lines[place], OWN), _speed_by(self._together(phase, unit), PEERS)
        if own is None or peers is None:
            return own or peers or (_assumed(usual_ns) if self._may_assume else None)
        own_is_known, peers_are_known = (
            each.most_ns - each.ns <= KNOWN.value * usual_ns for each in (own, peers)
        )
        if own_is_known and peers_are_known:  # a lateness that comes with more work may not come from it
            return own._replace(least_ns=min(own.least_ns, peers.ns), most_ns=max(own.most_ns, peers.ns))
        return own if own_is_known or own.most_ns - own.ns < peers.most_ns - peers.ns else peers

    def _usual_ns(self, place: Place) -> float:
        """The others' time per FLOP."""
        points = self._points[place]
        flops = sum(point.load.usual_flops for point in points)
        return sum(point.own_ns - point.longer_ns for point in points) / flops

    def _together(self, phase: int, but: int | None) -> list[_Sums]:
        lines = [line for (unit, at), line in self._lines.items() if at == phase and unit != but]
        return [_added(blocks) for blocks in zip(*lines, strict=True)]

    def _line_of(self, points: Sequence[_Point]) -> list[_Sums]:
        """The sums of each block of steps around the unit's means, outliers left out; of nothing where steps
        do not differ.
        """
        of_pass = mean([point.load.usual_flops / point.load.usual_passes for point in points])
        return self._line(
            [(point.at, point.load.more_flops, point.longer_pass_ns) for point in points], ALIKE * of_pass
        )

    def _line(self, values: Sequence[tuple[int, float, float]], least: float) -> list[_Sums]:
        """Of steps, x and y; x differs by at least so much."""
        blocks = [_Sums()] * BLOCKS
        if max(x for _, x, _ in values) - min(x for _, x, _ in values) < least:
            return blocks
        for _ in range(2):
            whole = _added([_sums(x, y) for _, x, y in values])
            slope = whole.slope or 0.0
            left = [y - slope * x for _, x, y in values]
            middle, limit = median(left), max(LEAST_NS, OUTLIER * scatter(left))
            values = [one for one, rest in zip(values, left, strict=True) if abs(rest - middle) <= limit]
        whole, count = _added([_sums(x, y) for _, x, y in values]), len(values)
        for at, x, y in values:
            block = at * BLOCKS // self._steps
            blocks[block] = blocks[block].plus(_sums(x - whole.x / count, y - whole.y / count))
        return blocks


def _points_of(book: Book, lateness: Lateness) -> dict[Place, list[_Point]]:
    found: dict[Place, list[_Point]] = defaultdict(list)
    columns = {
        phase: [column for column, way in enumerate(book.ways) if way.phase == phase] for phase in COMPUTING
    }
    for at, step in enumerate(book.steps):
        for row, load in enumerate(step.loads or ()):
            unit = step.units[row]
            if unit is not None:
                for phase in COMPUTING:
                    own_ns = sum(step.own_ns[row][column] for column in columns[phase])
                    longer_ns = lateness.beyond_ns.get((unit, phase), {}).get(at, 0)
                    found[unit, phase].append(_Point(at, load, own_ns, longer_ns))
    return found


def _kind_of(of_passes_ns: float, of_size_ns: float, has_experts: bool) -> str | None:
    """`of_passes_ns`, `of_size_ns`: what more micro-batches take, and larger ones."""
    more_ns = max(0.0, of_passes_ns) + max(0.0, of_size_ns)
    if more_ns <= 0 or max(of_passes_ns, of_size_ns) < CAUSE * more_ns:
        return None
    if of_passes_ns > of_size_ns:
        return MICROBATCHES
    return None if has_experts else DOCUMENTS


def _busiest(at: int, step: Step) -> _Busiest:
    loads = step.loads or []
    flops = [load.expert_flops for load in loads]
    usual, most = mean(flops), max(flops)
    place = flops.index(most)
    ratio = most / usual if usual else 1.0
    return _Busiest(at, step.units[place], most - usual, ratio, loads[place].flops)


def _who(most: Sequence[_Busiest]) -> tuple[int | None, list[int]]:
    """The unit that has most of what is more than the mean, and where; no unit where several have it."""
    more: dict[int | None, float] = defaultdict(float)
    for each in most:
        more[each.unit] += each.more
    unit = max(more, key=more.__getitem__)
    is_one = more[unit] >= CAUSE * sum(more.values())
    return unit if is_one else None, [each.at for each in most if each.unit == unit]


def _assumed(usual_ns: float, at_least_ns: float = math.inf) -> Speed:
    """What one FLOP more takes where one takes so long, and no steps tell."""
    least_ns = min((1 - CONSTANT.value) * usual_ns, at_least_ns)
    return Speed((least_ns + usual_ns) / 2, least_ns, usual_ns, ASSUMED)


def _assumed_of_both(forward_ns: float, backward_ns: float) -> tuple[Speed, Speed]:
    """The same of both passes. The backward pass has twice the FLOPs at least: what the forward pass takes
    beyond half of it is none. If both take as long beside FLOPs, all that one takes longer is FLOPs.
    """
    most_ns = min(forward_ns, backward_ns / BACKWARD_FLOPS)
    alike_ns = max(0.0, backward_ns - forward_ns) / (BACKWARD_FLOPS - 1)
    return _assumed(most_ns, alike_ns), _assumed(backward_ns, BACKWARD_FLOPS * alike_ns)


def _sums(x: float, y: float) -> _Sums:
    return _Sums(1, x, y, x * x, x * y)


def _speed_by(line: Sequence[_Sums], source: str) -> Speed | None:
    """The slope, with its error from leaving out each block of steps once; None where too few have one."""
    whole = _added(line)
    slopes = [whole.plus(block, -1).slope for block in line if block.steps]
    known = [slope for slope in slopes if slope is not None]
    if whole.slope is None or len(known) < max(3, len(slopes)):
        return None
    middle = mean(known)
    error = math.sqrt((len(known) - 1) / len(known) * sum((each - middle) ** 2 for each in known))
    ns, either = max(0.0, whole.slope), DEVIATIONS * error
    return Speed(ns, max(0.0, ns - either), ns + either, source)


def _added(sums: Iterable[_Sums]) -> _Sums:
    whole = _Sums()
    for one in sums:
        whole = whole.plus(one)
    return whole


def surplus_of(
    book: Book, step: Step, speeds: Mapping[int, Speed], late: Collection[Place]
) -> list[list[int]]:
    """For each row and column, by how many nanoseconds more work than the mean of all units makes it longer;
    below 0 for less work. A unit in `late` has the others' work: what it takes longer is counted elsewhere.
    """
    found = [[0] * len(book.ways) for _ in step.units]
    weights = [step.others if unit is None else 1 for unit in step.units]
    for phase, speed in speeds.items() if step.loads else ():
        columns = [column for column, way in enumerate(book.ways) if way.phase == phase]
        is_late = [(unit, phase) in late for unit in step.units]
        loads = list(map(_counted, step.loads or (), is_late))
        passes, flops = (sum(map(mul, weights, each)) for each in zip(*loads, strict=True))
        usual = passes / sum(weights)
        for row, (own_passes, own_flops) in enumerate(loads):
            own_ns = [_own_ns(step, row, column, is_late[row]) for column in columns]
            whole_ns, of_size = sum(own_ns) or 1, own_flops / own_passes - flops / passes
            more_ns = whole_ns * (1 - usual / own_passes) + speed.ns * usual * of_size
            for column, ns in zip(columns, own_ns, strict=True):
                found[row][column] = min(ns, round(more_ns * ns / whole_ns))
    return found


def _counted(load: Load, is_late: bool) -> tuple[float, float]:
    return (load.usual_passes, load.usual_flops) if is_late else (load.passes, load.flops)


def _own_ns(step: Step, row: int, column: int, is_late: bool) -> int:
    return step.own_ns[row][column] - (max(0, step.beyond_ns[row][column]) if is_late else 0)
