"""Names the units that are late, with phase and rhythm, by paired differences within each step.

A unit is compared with the others in the same step, so that what makes all of them slow cancels. Names are
given by a sign test, corrected for the number of units and phases that are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from flagscale_perf.spine.averages import median, scatter
from flagscale_perf.spine.chance import CHANCE, binomial_tail, both, period_of
from flagscale_perf.spine.limits import Limit
from flagscale_perf.training.growth import growth_of
from flagscale_perf.training.ledger.book import Book, Lateness, Place, filled

FEWEST = Limit(20, "steps", "ours: of fewer, a sign test names nothing among a few dozen candidates")
STEADY = Limit(0.02, "share", "ours: of a step, in the median; what is late by less is not worth a name")
LIVE = Limit(0.05, "share", "ours: the same for a line while the training lasts: 20 steps may drift together")
EVENT = Limit(
    0.1, "share", "ours: of a step; what a single step takes longer, from where it is one that stands out"
)
EVENT_SCATTER = Limit(
    6.0, "times", "ours: of the usual scatter, for the same; a normal one passes it once in 10^9"
)
STOP = Limit(5.0, "steps", "ours: what one step takes longer, from where it is told on its own")
EVENTS = ("periodic", "bursts", "single")  # patterns of steps that stand out
FEWEST_EVENTS, MOST_EVENTS = 4, 0.4  # of all steps
OFTEN = 1 / 16  # of all steps; a unit recorded in fewer is late in single steps only
PARTS = 4  # of the run; a steady lateness is there in each of them
AROUND = 5  # steps on either side; their median is what is usual there


class Late(NamedTuple):
    """A unit that is late in a phase.

    Attributes:
        unit, phase: which.
        pattern: "constant", "periodic", "bursts", "growing", "lasting", or "single" for a stop.
        at: places of the steps that it concerns.
        usual_ns: what it takes longer in one of them, the median.
        distance: of a periodic one, in steps.
    """

    unit: int
    phase: int
    pattern: str
    at: Sequence[int]
    usual_ns: int
    distance: int | None = None

    @property
    def place(self) -> Place:
        """Unit and phase, as `Lateness` has them."""
        return self.unit, self.phase


def own_lateness(late: Sequence[Late], lateness: Lateness) -> dict[Place, dict[int, int]]:
    """How much of its lateness is a steady unit's own, by the step's place; the rest is chance, which stays
    when the lateness is mended. Steps that are missing are all the unit's own.

    By chance a step is as often, and by as much, later than usual as it is less late. What is above the usual
    beyond that, nothing below it answers: work or a stall that some steps have.
    """
    found: dict[Place, dict[int, int]] = {}
    events = {(one.place, at) for one in late if one.pattern in EVENTS for at in one.at}
    for one in late:
        if one.pattern in EVENTS:
            continue
        beyond_ns = [lateness.beyond_ns[one.place].get(at, 0) for at in one.at]
        usual_ns = [median(beyond_ns[max(0, at - AROUND) : at + AROUND + 1]) for at in range(len(beyond_ns))]
        rest_ns = [ns - usual for ns, usual in zip(beyond_ns, usual_ns, strict=True)]
        above_ns, below_ns = (sum(max(0.0, sign * ns) for ns in rest_ns) for sign in (1, -1))
        chance = min(1.0, below_ns / above_ns) if above_ns else 0.0
        found[one.place] = {
            at: round(ns - chance * max(0.0, rest))
            for at, ns, rest in zip(one.at, beyond_ns, rest_ns, strict=True)
            if (one.place, at) not in events
        }
    return found


def late_units(
    book: Book,
    lateness: Lateness,
    step_ns: float,
    explained: Callable[[Place], Mapping[int, int]] = lambda place: {},
) -> list[Late]:
    """None of fewer steps than `FEWEST`. `step_ns`: of a usual step; `explained`: how much longer more work
    makes a unit's phase.
    """
    steps = len(book.steps)
    if steps < FEWEST.count:
        return []
    often = {
        place: filled(beyond, steps)
        for place, beyond in lateness.beyond_ns.items()
        if len(beyond) >= OFTEN * steps
    }
    events = {place: _events(each, often.get(place), step_ns) for place, each in lateness.beyond_ns.items()}
    found: list[Late | None] = []
    for place, beyond in lateness.beyond_ns.items():
        series = often.get(place)
        usual_ns = median(series) if series else 0
        found.append(_single(book, place, events, usual_ns, beyond) or _stop(place, beyond, step_ns))
        if series:
            least_ns, looks = STEADY.value * step_ns, len(events)
            work = filled(explained(place), steps)
            found.append(_grown(place, series, least_ns) or _steady(place, series, least_ns, looks, work))
    return _without_rotation([one for one in found if one is not None], len(book.units))


def _without_rotation(late: Sequence[Late], units: int) -> list[Late]:
    """Without units that are late one after the other, each in its turn, as data is dealt: that is nobody's,
    and "in turns" or "uneven batches".
    """
    turns = Counter(one.phase for one in late if one.pattern == "periodic" and one.distance == units)
    return [
        one for one in late if one.pattern != "periodic" or one.distance != units or turns[one.phase] < units
    ]


def steady_units(book: Book, lateness: Lateness, step_ns: float, least: float = LIVE.value) -> list[Late]:
    """Only those that are late in most steps, of at least `FEWEST`: what a few rounds of a live run show.
    `least`: share of a step.
    """
    steps, looks = len(book.steps), len(lateness.beyond_ns)
    if steps < FEWEST.count:
        return []
    found = (
        _steady(place, filled(beyond, steps), least * step_ns, looks)
        for place, beyond in lateness.beyond_ns.items()
        if 2 * len(beyond) >= steps
    )
    return [one for one in found if one is not None]


def _events(found: Mapping[int, int], series: Sequence[int] | None, step_ns: float) -> list[int]:
    """Places of the steps that stand out. `series`: a value for each step; None where most of them are 0."""
    usual = spread = 0.0
    if series is not None:
        usual = median(series)
        spread = scatter(series)
        found = dict(enumerate(series))
    limit = max(EVENT.value * step_ns, EVENT_SCATTER.value * spread)
    return [place for place, value in found.items() if value - usual > limit]


def _single(
    book: Book, place: Place, events: dict[Place, list[int]], usual_ns: float, beyond: Mapping[int, int]
) -> Late | None:
    at = events[place]
    if not FEWEST_EVENTS <= len(at) < MOST_EVENTS * len(book.steps):
        return None
    more_ns = int(median(beyond.get(each, 0) for each in at) - max(0, usual_ns))
    iterations = [book.steps[each].iteration for each in at]
    span = range(book.steps[0].iteration, book.steps[-1].iteration + 1)
    _, phase = place
    of_all = sum(len(found) for (_, other), found in events.items() if other == phase)
    on_one_unit = binomial_tail(len(at), of_all, 1 / len(book.units))
    period = period_of(iterations, span)
    if period is not None and both(on_one_unit, period.chance) * len(events) < CHANCE.value:
        hits = set(period.hits)
        on_time = [each for each, iteration in zip(at, iterations, strict=True) if iteration in hits]
        return Late(*place, "periodic", on_time, more_ns, period.distance)
    return Late(*place, "bursts", at, more_ns) if on_one_unit * len(events) < CHANCE.value else None


def _stop(place: Place, beyond: Mapping[int, int], step_ns: float) -> Late | None:
    """Single steps so much longer that each is worth a line."""
    at = [number for number, value in beyond.items() if value > STOP.value * step_ns]
    longest = max((beyond[each] for each in at), default=0)
    return Late(*place, "single", at, longest) if 0 < len(at) < FEWEST_EVENTS else None


def _grown(place: Place, beyond: Sequence[int], least_ns: float) -> Late | None:
    growth = growth_of(str(place), beyond, [0] * len(beyond))
    if growth is None or growth.mean_ns < least_ns or growth.last_ns <= 0:
        return None
    since = growth.since or 0
    pattern = "growing" if growth.since is None else "lasting"
    at = range(since, len(beyond))
    return Late(*place, pattern, at, int(median(beyond[since:])))


def _steady(
    place: Place, beyond: Sequence[int], least_ns: float, looks: int, work: Sequence[int] = ()
) -> Late | None:
    """One that is late in most steps, in each part of the run by half as much as in any other at least; or
    that has more work, as evenly: `work` is what that takes, without what else happens in a step.
    """
    count, usual = len(beyond), median(beyond)
    if usual < least_ns:
        return None
    ahead = sum(value > 0 for value in beyond)
    is_even = any(_is_even(series, least_ns) for series in (beyond, work))
    if not is_even or binomial_tail(ahead, count, 0.5) * looks > CHANCE.value:
        return None
    return Late(*place, "constant", range(count), int(usual))


def _is_even(series: Sequence[int], least_ns: float) -> bool:
    count = len(series)
    parts = [series[count * part // PARTS : count * (part + 1) // PARTS] for part in range(PARTS)]
    medians = [median(part) for part in parts if part]
    return bool(medians) and median(series) >= least_ns and min(medians) >= max(medians) / 2
