"""Collects what findings need beyond a report's tables, in bounded memory: slow steps, a sample of steps with
their phases, and what troubles cost their intervals.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import floordiv, not_, or_

from flagscale_perf.spine.averages import median
from flagscale_perf.spine.chance import excess_of
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.live import BEGINS, FindingRecord
from flagscale_perf.training.analysis.findings.anatomy import Anatomy
from flagscale_perf.training.analysis.findings.course import Course
from flagscale_perf.training.clocks import caps_in
from flagscale_perf.training.columns import Intervals, highest_of, lowest_of
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import PhaseJoin
from flagscale_perf.training.ranks.hang import HANG
from flagscale_perf.training.records import IntervalRecord, PhaseRecord, StandstillRecord, StepRecord
from flagscale_perf.training.sample import Sample, Step
from flagscale_perf.training.samples import Reservoir
from flagscale_perf.training.settled import is_judged
from flagscale_perf.training.stretch import Stretch
from flagscale_perf.training.usual import UsualSteps
from flagscale_perf.training.window import end_mono_ns

RECENT = 64
MIN_RECENT = 8
MAX_SLOW_STEPS = 100
PER_MILLE = 1000
SAMPLE_STEPS, SAMPLE_STRETCH = 2048, 512  # of a long run four stretches: enough for periods, and bounded
SLOW_STEP = Limit(
    1.2, "times", "ours: the median of the 64 steps before; even steps stay within a tenth of it"
)


@dataclass(frozen=True)
class Slow:
    """A slow step: nanoseconds, and the monotonic mark of its end."""

    iteration: int
    end_ns: int
    iteration_ns: int
    usual_ns: int


class SlowSteps:
    """Finds the steps that took longer than those around them; of many it keeps the longest.

    Attributes:
        count: how many.
        excess_ns: what they took longer than usual, all together.
        ratios: every step's time, in thousandths of the usual one.
    """

    def __init__(self) -> None:
        self.count = self.excess_ns = 0
        self.ratios = Reservoir()
        self._recent: deque[int] = deque(maxlen=RECENT)
        self._longest: list[tuple[int, int, Slow]] = []

    def add(self, step: StepRecord) -> bool:
        """Takes in a step and says whether it is slow. Warm-up and passed-over data are not judged."""
        if not is_judged(step):
            return False
        usual_ns = int(median(self._recent)) if len(self._recent) >= MIN_RECENT else 0
        self._recent.append(step.iteration_ns)
        if not usual_ns:
            return False
        self.ratios.add(step.iteration_ns * PER_MILLE // usual_ns)
        return self._is_slow(Slow(step.iteration, end_mono_ns(step), step.iteration_ns, usual_ns))

    @property
    def takes_many(self) -> bool:
        """Whether steps can be judged together: as many as the median is made of are known."""
        return len(self._recent) == RECENT and min(self._recent) > 0

    def add_usual(self, steps: UsualSteps) -> set[int]:
        """Takes in steps and returns the places of those that are slow."""
        times, iterations = steps.columns["iteration_ns"], steps.columns["iteration"]
        known = [*self._recent, *times]
        for at, place in self.ratios.places(len(times)):
            self.ratios.keep(times[at] * PER_MILLE // int(median(known[at : at + RECENT])), place)
        self._recent.extend(times)
        return {
            at
            for begin in range(0, len(times), RECENT)
            for at in _candidates(known[begin : begin + 2 * RECENT], begin)
            if self._is_slow(
                Slow(iterations[at], steps.ends_ns[at], times[at], int(median(known[at : at + RECENT])))
            )
        }

    def _is_slow(self, step: Slow) -> bool:
        """Counts it if it is slow."""
        if step.iteration_ns <= SLOW_STEP.value * step.usual_ns:
            return False
        excess_ns = step.iteration_ns - step.usual_ns
        self.count += 1
        self.excess_ns += excess_ns
        push = heapq.heappush if len(self._longest) < MAX_SLOW_STEPS else heapq.heappushpop
        push(self._longest, (excess_ns, step.iteration, step))
        return True

    def longest(self) -> list[Slow]:
        """The slow steps that were kept, in order of time."""
        return sorted((slow for _, _, slow in self._longest), key=lambda slow: slow.iteration)


def _candidates(known: Sequence[int], begin: int) -> Iterator[int]:
    """Steps behind the first `RECENT` that may be slow: no median among these is below that of the lowest."""
    lowest_ns, times = sorted(known)[(RECENT - 1) // 2], known[RECENT:]
    if max(times) > SLOW_STEP.value * lowest_ns:
        yield from (begin + n for n, time_ns in enumerate(times) if time_ns > SLOW_STEP.value * lowest_ns)


class Trouble:
    """Intervals with a trouble.

    Attributes:
        steps: in them.
        first_iteration, iteration: from the first of them to the last.
        means_ns: a mean step of each.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.means_ns = Reservoir()
        self.first_iteration: int | None = None
        self.iteration: int | None = None
        self._troubled_ns = 0

    def add(self, interval: IntervalRecord) -> None:
        """Takes in an interval that has steps and is not warm-up."""
        self.steps += interval.steps
        self.means_ns.add(interval.iteration_ns // interval.steps)
        self._troubled_ns += interval.iteration_ns
        if self.first_iteration is None:
            self.first_iteration = interval.first_iteration
        self.iteration = interval.iteration

    def excess_ns(self, usual_ns: int | None) -> int | None:
        """Time that the trouble took beyond usual steps; None where no usual step is known."""
        return None if usual_ns is None else max(0, self._troubled_ns - self.steps * usual_ns)


class Signals:
    """Folds steps and intervals.

    Attributes:
        throttled, retried: intervals in which a cap held the clock down, and in which the allocator ran out
            of room.
        retries: of the allocator, after the first interval.
        course: the run in stretches.
        caps: the names of the caps in throttled intervals.
        lowest_clock: of a throttled interval, as a share of the highest clock of the run.
        stood: stretches in which the job stood still, and their time.
        hang: in which the run ends so far; None where steps come, or nothing was said.
    """

    def __init__(self) -> None:
        self.stood, self.stood_ns = 0, 0
        self.hang: FindingRecord | None = None
        self.slow_steps = SlowSteps()
        self._sample: Sample[Step] = Sample(SAMPLE_STEPS, SAMPLE_STRETCH)
        self._phases = PhaseJoin(RunFacts.of({}))  # what a wait is for is not asked here
        self.throttled, self.retried = Trouble(), Trouble()
        self.course = Course()
        self._untroubled = Reservoir()
        self.caps: set[str] = set()
        self.retries = 0
        self.lowest_clock: float | None = None
        self._top_mhz = 0
        self._last_retries: int | None = None

    def hold(self, phases: PhaseRecord) -> None:
        """Phases whose step comes next."""
        self._phases.hold(phases)

    def add_standstill(self, stretch: StandstillRecord) -> None:
        """Takes in a stretch in which the job stood still."""
        self.stood += 1
        self.stood_ns += stretch.stood_ns

    def add_finding(self, finding: FindingRecord) -> None:
        """Takes in what was said of the run while it lasted."""
        if finding.finding == HANG:
            self.hang = finding if finding.state == BEGINS else None

    def add_step(self, step: StepRecord) -> bool:
        """Takes in a step and says whether it is slow."""
        joined = self._phases.take(step)
        if is_judged(step) and self._sample.keeps(step.iteration):
            self._sample.add(Step.of(step, None if joined is None else joined.record))
        return self.slow_steps.add(step)

    def add_usual(self, steps: UsualSteps) -> set[int]:
        """Takes in steps and returns the places of those that are slow."""
        iterations = steps.columns["iteration"]
        are_left_out = self._sample.keeps_none(lowest_of(iterations), highest_of(iterations))
        for number, iteration in enumerate(() if are_left_out else iterations):
            if self._sample.keeps(iteration):
                self._sample.add(Step.of(steps.one(number), steps.phases_of(number)))
        return self.slow_steps.add_usual(steps)

    def anatomy(self, since: int = 0) -> Anatomy:
        """The steps sampled so far, from that iteration on, taken apart."""
        return Anatomy([step for number, step in self._sample.steps.items() if number >= since])

    def throughout(self, since: int = 0) -> Anatomy:
        """The run from that iteration on: every step, or of a long run the mean steps of its stretches."""
        if not self._sample.thinned:
            return self.anatomy(since)
        return Anatomy([one.mean() for one in self.course.since(since)])

    def add_intervals(self, intervals: Intervals) -> None:
        """Takes in intervals; of a warm-up, or one without steps, only its counter of retries."""
        retries = self._more_retries(intervals["memory_retries"])
        are_judged = [
            steps and not is_warmup
            for steps, is_warmup in zip(intervals["steps"], intervals["warmup_only"], strict=True)
        ]
        judged, retries = intervals.those(are_judged), [*compress(retries, are_judged)]
        self.course.add(judged)
        capped = [*map(self._is_throttled, judged["sm_clock_mhz"], judged["throttle"])]
        are_troubled = [*map(or_, map(bool, retries), capped)]
        for number in compress(range(len(judged)), are_troubled):
            interval = judged.one(number)
            if retries[number]:
                self.retries += retries[number]
                self.retried.add(interval)
            if capped[number]:
                self.throttled.add(interval)
        untroubled = judged.those(map(not_, are_troubled))
        if len(untroubled):
            self._untroubled.add_many([*map(floordiv, untroubled["iteration_ns"], untroubled["steps"])])

    def _more_retries(self, counts: Sequence[int | None]) -> list[int]:
        more = []
        for count in counts:
            before = self._last_retries
            more.append(0 if count is None or before is None else max(0, count - before))
            self._last_retries = before if count is None else count
        return more

    @property
    def host(self) -> Stretch:
        """The whole run as a stretch: for how long the host kept the training thread waiting."""
        return Stretch.of(self.course.since(0))

    def usual_ns(self) -> int | None:
        """A mean step of the median interval without these troubles; None where every interval has one."""
        return self._untroubled.quantile(0.5)

    def slower(self, trouble: Trouble) -> float:
        """How many standard deviations slower the intervals with a trouble are than those without."""
        return excess_of(trouble.means_ns.kept(), self._untroubled.kept())

    def _is_throttled(self, clock_mhz: int | None, throttle: str | None) -> bool:
        """Whether a cap held the clock below the highest one so far; not where the clock was not read."""
        if not clock_mhz:
            return False
        self._top_mhz = max(self._top_mhz, clock_mhz)
        caps = caps_in(throttle, clock_mhz, self._top_mhz)
        if not caps:
            return False
        self.caps.update(caps)
        share = clock_mhz / self._top_mhz
        self.lowest_clock = share if self.lowest_clock is None else min(self.lowest_clock, share)
        return True
