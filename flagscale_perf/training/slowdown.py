"""Tells while a training lasts that its steps have become slower, by the test of the report's finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flagscale_perf.spine.averages import median
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.live import BEGINS, ENDS, WORSENS, FindingRecord
from flagscale_perf.spine.shift import WORTH_A_LINE, Shift, shifts_of
from flagscale_perf.spine.units import number
from flagscale_perf.training.records import IntervalRecord
from flagscale_perf.training.stretch import Stretch

KEPT = 128  # means; when they are so many, neighbours become one
COARSEST = 16  # intervals of a mean; then the older half goes instead, so that a late change is told soon
LASTS = 16  # means, an eighth of `KEPT`: a change is told that has lasted for as many
EVERY = 4  # new means between looks
BURST = 64  # steps, which it has lasted for besides: what is slow for less may be over soon
STEADY = 0.75  # of a change: what the fastest tenths differ by at least; bursts leave some as fast as before


@dataclass(frozen=True)
class _Told:
    """What has been told and is not over: times for a unit of work before the first rise and after the last.

    Attributes:
        until: iteration at which it was told; what changes later is another change.
        back: the time below which it is over.
    """

    until: int
    before: float
    after: float
    back: float


class SlowdownWatch:
    """Keeps means of settled intervals, as many in a long run as in a short one, and looks at them now and
    then.
    """

    def __init__(self) -> None:
        self._means: list[Stretch] = []
        self._open: list[IntervalRecord] = []
        self._width, self._new = 1, 0
        self._since = 0  # iteration of the last change that was told; what was before is no matter any more
        self._told: _Told | None = None

    def add(self, interval: IntervalRecord) -> FindingRecord | None:
        """The next interval; what is found of the steps up to it. Warm-up and intervals that trained nothing
        do not count; pauses and standing still are in no step.
        """
        if interval.warmup_only or not interval.steps:
            return None
        self._open.append(interval)
        if len(self._open) < self._width:
            return None
        self._means.append(Stretch.of(self._open))
        self._open, self._new = [], self._new + 1
        found = self._look() if self._new >= EVERY else None
        if len(self._means) >= KEPT:
            self._shrink()
        return found

    def _shrink(self) -> None:
        if self._width >= COARSEST:
            del self._means[: KEPT // 2]
        else:
            self._means = list(map(Stretch.of, zip(self._means[::2], self._means[1::2], strict=True)))
            self._width *= 2

    def _look(self) -> FindingRecord | None:
        self._new = 0
        usual = median(_work(mean) / mean.steps for mean in self._means)
        means = [mean for mean in self._means if mean.iteration > self._since]
        times = [mean.iteration_ns / _work(mean) for mean in means]
        changes = shifts_of(times, [mean.iteration for mean in means])
        begin = changes[-2].place if len(changes) > 1 else 0
        if not changes or not _lasts(changes[-1], means, begin):
            return None
        newest, told = changes[-1], self._told
        if newest.after > newest.before:
            return self._rise(newest, usual)
        if told is None or newest.after >= told.back:
            return None
        since = newest.last_before + 1
        text = f"steps are back to {_ms(newest.after * usual)} ms since about iteration {since}"
        found = _found(ENDS, text, (told.before, newest), usual)
        self._told, self._since = None, newest.last_before
        return found

    def _rise(self, change: Shift, usual: float) -> FindingRecord | None:
        """The same change, as it looks later, is not told again; of steps that take longer and longer is told
        when they take twice as much longer as was told before.
        """
        told, seen = self._told, self._means[-1].iteration
        if change.least <= WORTH_A_LINE * change.before:
            return None
        if told is None:
            self._told = _Told(seen, change.before, change.after, (change.before + change.after) / 2)
        elif change.earliest <= told.until or change.after - told.before < 2 * (told.after - told.before):
            return None
        else:
            self._told = replace(told, until=seen, after=change.after)
        self._since = change.last_before
        longer = round((change.after / change.before - 1) * 100)
        before, after = _ms(change.before * usual), _ms(change.after * usual)
        since = f"since about iteration {change.last_before + 1}"
        text = f"a step takes {longer} % longer {since} ({before} to {after} ms)"
        return _found(BEGINS if told is None else WORSENS, text, (self._told.before, change), usual)


def _found(state: str, text: str, since: tuple[float, Shift], usual: float) -> FindingRecord:
    """`since`: the time for a unit of work before the first rise, and the newest change; `usual`: work of a
    step. As times are for a unit of work, MFU and tokens a second have fallen by as much.
    """
    before, change = since
    evidence = {
        "since_iteration": change.last_before + 1,
        "before_ms": before * usual / NS_PER_MS,
        "after_ms": change.after * usual / NS_PER_MS,
        "rate_down_share": 1 - before / change.after,
    }
    return FindingRecord("slowdown", state, text, change.after / before - 1, "share", evidence=evidence)


def _lasts(change: Shift, means: Sequence[Stretch], begin: int) -> bool:
    """Whether it has lasted for long and is in most steps: the fastest tenths of its sides differ, too.
    `begin`: where the change before it is.
    """
    times = [mean.iteration_ns / _work(mean) for mean in means]
    sides = times[begin : change.place], times[change.place :]
    if len(sides[1]) < LASTS or sum(mean.steps for mean in means[change.place :]) < BURST:
        return False
    before, after = (sorted(side)[len(side) // 10] for side in sides)
    return (after - before) / (change.after - change.before) >= STEADY


def _work(mean: Stretch) -> int:
    """FLOPs; tokens, or steps, where these are not known."""
    return mean.model_flops or mean.tokens or mean.steps


def _ms(dur_ns: float) -> str:
    return number(dur_ns / NS_PER_MS, 1)
