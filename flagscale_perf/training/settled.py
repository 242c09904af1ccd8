"""Finds where a session's start ends: while kernels are compiled and tuned, caches fill and memory is touched
for the first time, steps are slower than in its settled state.

The steps after the first one are judged, up to `HORIZON` of them:

- the usual time is the median of the second half of the steps seen;
- a step is slow that takes more than the usual time and a tolerance: 5 %, or the spread of the second half
  (its median absolute deviation, scaled to a standard deviation) where steps are less even than that;
- the start ends where the number of slow steps is furthest ahead of the others; it is over once they are
  `MAX_BEHIND` behind. So single slow steps and slow stretches after usual steps are no start;
- what happens again later is no start: it has to take twice as long beyond the limit as any later stretch
  does, in which a step counts as no more than the mean one of the start (a hang is not a stretch);
- a lead that steps as uneven as the later ones would have by chance is none: of independent steps of which
  a share p is slow, a lead of h happens with the probability (p / (1 - p))^h (the gambler's ruin);
- a start longer than the rest has not settled: what is usual is not known yet, or the run drifts.

The choice is final after `HORIZON` steps, so that a long run needs no more memory, and a change of speed
hours later is no start. Writer, report and comparison fold the same steps and find the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

from flagscale_perf.spine.averages import median, scatter
from flagscale_perf.training.records import Outcome, StepRecord

HORIZON = 1024
MIN_STEPS = 20
TOLERANCE = 0.05
MAX_CHANCE = 0.01
MIN_TIMES_LATER = 2
MAX_BEHIND = 3


@dataclass(frozen=True)
class Start:
    """The start of a session, as far as it is known.

    Attributes:
        settled_iteration: the first settled one; None where the session has not settled.
        reason: why not; None where it has.
        steps: that the start has after the first one; 0 where it has not settled, like the following.
        dur_ns: their time.
        excess_ns: what they took longer than usual ones.
        usual_ns: a usual settled step; None where it has not settled.
        is_too_long: it has not settled as its start takes more than half of its steps.
    """

    settled_iteration: int | None
    reason: str | None
    steps: int = 0
    dur_ns: int = 0
    excess_ns: int = 0
    usual_ns: int | None = None
    is_too_long: bool = False

    @property
    def is_slow(self) -> bool:
        """Whether steps after the first one belong to the start."""
        return self.steps > 0


class Settling:
    """Folds the steps of a session into its start.

    Attributes:
        is_final: no further step changes the result.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[int, int]] = []
        self._start: Start | None = None

    @property
    def is_final(self) -> bool:
        """Whether no further step changes the result."""
        return len(self._steps) >= HORIZON

    def add(self, step: StepRecord) -> None:
        """The next step. The first one after a start or resume, and data passed over, are not judged."""
        if not self.is_final and is_judged(step):
            self._steps.append((step.iteration, step.iteration_ns))
            self._start = None

    def result(self) -> Start:
        """The start, as far as the steps so far show it."""
        if self._start is None:
            self._start = _start_of(self._steps)
        return self._start


def is_judged(step: StepRecord) -> bool:
    """Whether the step says something of the speed of steps."""
    return not step.warmup and step.outcome != Outcome.DATA_SKIPPED


def _start_of(steps: Sequence[tuple[int, int]]) -> Start:
    count = len(steps)
    if count < MIN_STEPS:
        return Start(None, f"{count} steps after the first are too few to tell, {MIN_STEPS} are needed")
    times = [time_ns for _, time_ns in steps]
    usual_ns = int(median(times[count // 2 :]))
    length = slow_steps_before(times, usual_ns)
    if length > count // 2:
        reason = f"the slow start takes more than half of the first {count} steps"
        return Start(None, reason, is_too_long=True)
    excess_ns = sum(max(0, time - usual_ns) for time in times[:length])
    return Start(steps[length][0], None, length, sum(times[:length]), excess_ns, usual_ns)


def slow_steps_before(times: Sequence[int], usual_ns: int) -> int:
    """How many steps the slow start has; 0 where there is none, or none that stands out."""
    later = times[len(times) // 2 :]
    spread_ns = scatter(later, usual_ns)
    limit_ns = usual_ns + max(TOLERANCE * usual_ns, spread_ns)
    leads = accumulate((1 if time > limit_ns else -1 for time in times), initial=0)
    lead = list(takewhile(lambda ahead: ahead > -MAX_BEHIND, leads))
    length = lead.index(max(lead))
    beyond = [time - limit_ns for time in times]
    if not length or _is_chance(max(lead), beyond[length:]) or _comes_again(beyond[:length], beyond[length:]):
        return 0
    return length


def _is_chance(lead: int, rest: Sequence[float]) -> bool:
    """Whether steps like the rest, of which those above 0 are slow, would have such a lead now and then."""
    slow_share = (sum(each > 0 for each in rest) + 0.5) / (len(rest) + 1)
    return slow_share < 0.5 and (slow_share / (1 - slow_share)) ** lead > MAX_CHANCE


def _comes_again(start: Sequence[float], rest: Sequence[float]) -> bool:
    """Whether a later stretch takes nearly as long beyond the limit: the largest sum of neighbours."""
    most, longest, running = sum(start) / len(start), 0.0, 0.0
    for each in rest:
        running = max(0.0, running + min(each, most))
        longest = max(longest, running)
    return sum(start) < MIN_TIMES_LATER * longest
