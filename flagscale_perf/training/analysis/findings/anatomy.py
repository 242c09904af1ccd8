"""The steps of a run taken apart: what each phase usually takes, what single steps take beyond that, and in
which phase and rhythm. Whether it is more than chance is in the numbers; whether it matters, rules decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from flagscale_perf.spine.averages import median, scatter
from flagscale_perf.spine.chance import CHANCE, Period, binomial_tail, period_of
from flagscale_perf.spine.limits import Limit
from flagscale_perf.training.growth import Growth, growth_of
from flagscale_perf.training.ledger.ledger import Ledger
from flagscale_perf.training.ledger.naming import EVENT_SCATTER, FEWEST
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.sample import Step

NEIGHBOURS = 32  # a step's usual times are medians over these before, beside and behind it: some 96
# Sizes of what stands out are tried from that of the eighth longest on.
COUNTS = (8, 16, 32, 64, 128, 256, 512)
EVENT = Limit(
    0.1,
    "share",
    "ours: of a usual step; what single steps take longer in a phase, from where it is looked at",
)
ALIKE_SHARE = Limit(
    0.6,
    "share",
    "ours: of the excess of the eighth longest step, the sixteenth ...: what is as long is of its kind",
)
APART = 2  # times: so much more than the rest of a step a phase has to stretch, to be told apart from it
BESIDE = 0.75  # of the shortest excess in a phase: what is at least so long in the rest counts against it
FLOOR = 0.25  # of slow steps, how many a phase may have by chance, if it is so short that its share is less


class Periodic(NamedTuple):
    """Steps that are longer at even distances.

    Attributes:
        phase: that is longer in them; None where no phase has more than half of it.
        excess_ns: what one of them takes longer, the median.
    """

    period: Period
    phase: str | None
    excess_ns: int


class Longer(NamedTuple):
    """Steps that are longer in one phase.

    Attributes:
        iterations: ascending.
        excess_ns: what each of them takes longer in it.
        chance: that the others' phases let it stand out like this in a run without a cause.
    """

    phase: str
    iterations: list[int]
    excess_ns: list[int]
    chance: float

    @property
    def bursts(self) -> list[tuple[int, int]]:
        """First and last iteration of each stretch of them; a single step may interrupt one."""
        stretches: list[tuple[int, int]] = []
        for iteration in self.iterations:
            if stretches and iteration - stretches[-1][1] <= 2:
                stretches[-1] = stretches[-1][0], iteration
            else:
                stretches.append((iteration, iteration))
        return stretches

    def comes_in_bursts(self, steps: int) -> bool:
        """Whether, among so many steps, more of them follow one another than by chance: three on average."""
        count, bursts = len(self.iterations), len(self.bursts)
        following = binomial_tail(count - bursts, count, min(1.0, 2 * count / max(steps, 1)))
        return count >= 3 * bursts and following < CHANCE.value


def anatomy_of(ledgers: Sequence[Ledger]) -> Anatomy | None:
    """The anatomy of what all ranks of the first stage have in common; None where that is not known."""
    known = [ledger for ledger in ledgers if ledger.stage == 0 and ledger.steps >= FEWEST.count]
    return Anatomy(known[0].common) if known else None


class Anatomy:
    """Steps of one run, all of them or some whole stretches.

    Attributes:
        steps: by iteration.
        phases: those that took any time, with their times in each step; none where they were not measured in
            most steps.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        measured = [step for step in steps if step.phases_ns is not None]
        has_phases = len(measured) > len(steps) / 2
        self.steps = measured if has_phases else list(steps)
        self._iteration_ns = [step.iteration_ns for step in self.steps]
        self.phases: dict[str, list[int]] = {}
        for place, name in enumerate(PHASES if has_phases else ()):
            column = [(step.phases_ns or ())[place] or 0 for step in self.steps]
            if any(column):
                self.phases[name] = column

    @cached_property
    def iteration_ns(self) -> int:
        """The median step's time; 0 without steps."""
        return int(median(self._iteration_ns)) if self.steps else 0

    def usual_ns(self, phase: str) -> int:
        """Median time of a phase in a step; 0 where it was not measured."""
        column = self.phases.get(phase)
        return int(median(column)) if column else 0

    def part_of_all(self, part_ns: float) -> float:
        """`part_ns` as a share of the time of all these steps."""
        return part_ns / max(1, sum(self._iteration_ns))

    @cached_property
    def periodic(self) -> Periodic | None:
        """The least likely period of steps slow as a whole or in a phase; None where all may be chance."""
        found: list[Period] = []
        looks = 0
        for column in (self._longer, *self._beyond.values()):
            for slow in self._sizes(column):
                for span in self._stretches:
                    looks += 1
                    at = [self.steps[place].iteration for place in slow]
                    period = period_of([one for one in at if one in span], span)
                    if period is not None:
                        found.append(period)
        best = min(found, key=lambda period: period.chance, default=None)
        if best is None or best.chance * looks > CHANCE.value:
            return None
        return self._periodic(best)

    def _periodic(self, period: Period) -> Periodic:
        places = [self._place[iteration] for iteration in period.hits]
        longer = {name: median(column[place] for place in places) for name, column in self._beyond.items()}
        whole = median(self._longer[place] for place in places)
        phase = max(longer, key=lambda name: longer[name], default=None)
        if phase is not None and longer[phase] > whole / 2:
            return Periodic(period, phase, int(longer[phase]))
        return Periodic(period, None, int(whole))

    @cached_property
    def longer(self) -> Longer | None:
        """The phase in which single steps take longer, out of proportion to the rest of the step: the one
        with most of it; None where chance may do it.

        Without a cause, a phase is hit as often as its share of the step is, and a busy neighbour hits all of
        them. So steps longer in a phase are counted against those longer in the rest.
        """
        found = [one for name in self.phases for one in self._longer_in(name)]
        significant = [one for one in found if one.chance * len(self.phases) * len(COUNTS) < CHANCE.value]
        return max(significant, key=lambda one: sum(one.excess_ns), default=None)

    def _longer_in(self, name: str) -> Iterator[Longer]:
        column = self._beyond[name]
        rest = [whole - part for whole, part in zip(self._longer, column, strict=True)]
        of_step = self.usual_ns(name) / max(1, self.iteration_ns)
        share, in_proportion = min(0.9, max(FLOOR, of_step)), APART * of_step / max(0.01, 1 - of_step)
        # An exchange varies by itself, though nothing is wrong with it.
        usual_ns = EVENT_SCATTER.value * scatter(column)
        for slow in self._sizes(column):
            least = min(column[place] for place in slow)
            held = [
                place
                for place in slow
                if column[place] > max(usual_ns, rest[place], in_proportion * rest[place])
                and place not in self._in_period
            ]
            if not held:
                continue
            others = sum(value > BESIDE * least for value in rest) - sum(
                rest[place] > BESIDE * least for place in held
            )
            chance = binomial_tail(len(held), len(held) + others, share)
            iterations = [self.steps[place].iteration for place in held]
            yield Longer(name, iterations, [column[place] for place in held], chance)

    @cached_property
    def _in_period(self) -> set[int]:
        return set() if self.periodic is None else {self._place[one] for one in self.periodic.period.hits}

    @cached_property
    def growth(self) -> Growth | None:
        """The phase that grew most, gradually or at once; None where none did more than the rest."""
        grown = []
        for name, column in self.phases.items():
            rest = [whole - part for whole, part in zip(self._iteration_ns, column, strict=True)]
            grown.append(growth_of(name, column, rest))
        known = [growth for growth in grown if growth is not None]
        return max(known, key=lambda one: one.last_ns - one.first_ns, default=None)

    @cached_property
    def _longer(self) -> list[int]:
        return self._beyond_usual(self._iteration_ns)

    @cached_property
    def _beyond(self) -> dict[str, list[int]]:
        return {name: self._beyond_usual(column) for name, column in self.phases.items()}

    def _beyond_usual(self, column: Sequence[int]) -> list[int]:
        usual: list[int] = []
        for first in range(0, len(column), NEIGHBOURS):
            around = sorted(column[max(0, first - NEIGHBOURS) : first + 2 * NEIGHBOURS])
            usual += [around[(len(around) - 1) // 2]] * min(NEIGHBOURS, len(column) - first)
        return [value - middle for value, middle in zip(column, usual, strict=True)]

    def _sizes(self, column: Sequence[int]) -> Iterator[list[int]]:
        """Places of what stands out in a column, the longest first, then more and more of it."""
        ordered = sorted(column, reverse=True)
        least, seen = EVENT.value * self.iteration_ns, 0
        for count in COUNTS:
            if count > len(ordered) / 2:
                return
            size = max(least, ALIKE_SHARE.value * ordered[count - 1])
            slow = [place for place, value in enumerate(column) if value >= size]
            if len(slow) > len(ordered) / 2 or len(slow) == seen:
                return
            seen = len(slow)
            yield slow

    @cached_property
    def _place(self) -> dict[int, int]:
        return {step.iteration: place for place, step in enumerate(self.steps)}

    @cached_property
    def _stretches(self) -> list[range]:
        numbers = [step.iteration for step in self.steps]
        breaks = [
            place for place, (one, other) in enumerate(pairwise(numbers), 1) if other - one > NEIGHBOURS
        ]
        edges = [0, *breaks, len(numbers)]
        return [range(numbers[one], numbers[other - 1] + 1) for one, other in pairwise(edges) if other > one]
