"""A run that becomes slower within itself: at once, more and more, or for a while."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from flagscale_perf.analysis.rules import Finding, rule
from flagscale_perf.analysis.shift import LINE_PARTS, Shift, beyond_line, shifts_of
from flagscale_perf.spine.chance import CHANCE, ends_of_line, rise_of
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.units import duration, number, percent
from flagscale_perf.training.analysis.findings.anatomy import Anatomy
from flagscale_perf.training.analysis.findings.case import TrainingCase, TrainingRule, slows
from flagscale_perf.training.analysis.findings.causes import causes_in, changes_in, named, profile
from flagscale_perf.training.analysis.findings.course import Stretch

SMALLEST = Limit(0.01, "share", "ours: of a step; steps that take so little longer are not worth a look")
RISE = Limit(
    4.0, "times", "Mann-Kendall, of sixteen medians: standard deviations; 1 of 15,000 runs by chance"
)
BURST = Limit(32, "steps", "ours, or a quarter of the run: what is slow at its end for less may be over soon")
MOST_OF_IT = 0.8  # of a change; what is so much of it is named as its place or cause
_ALL_PHASES = 0.5  # a phase belongs to "all" if it grew by so much of what the whole grew by, in proportion
_WAITS = ("CPU", "CPU", "memory", "its disks")


@dataclass(frozen=True)
class Slowdown:
    """Steps that take longer than others of the same run.

    Attributes:
        course: the steps, or means of some that follow one another.
        clearest: the greatest of the changes.
        slow: places in `course` of those that take longer than the fastest stretch.
        usual_ns, slow_ns: time of a step of the fastest stretch, and of the slowest.
        excess: what all of them take longer, as a share of the whole time.
        is_gradual: a line fits as well as levels do.
    """

    course: Anatomy
    changes: Sequence[Shift]
    clearest: Shift
    slow: Sequence[int]
    usual_ns: float
    slow_ns: float
    excess: float
    is_gradual: bool

    @property
    def span(self) -> tuple[int, int]:
        """First and last iteration of the slow ones."""
        first, last = self.slow[0], self.slow[-1]
        begin = self.course.steps[first - 1].iteration + 1 if first else self.course.steps[0].iteration
        return begin, self.course.steps[last].iteration

    @property
    def limits(self) -> tuple[float, float]:
        """Between which the share lies that a slow step takes longer; as sure as the clearest change is."""
        whole, change = self.slow_ns / self.usual_ns - 1, self.clearest
        least, most = sorted(end / (change.after - change.before) for end in (change.least, change.most))
        return max(0.0, whole * least), whole * most

    def longer(self, column: Sequence[int]) -> float:
        """What a column of the steps is longer by in the slow ones, median against median."""
        slow = set(self.slow)
        sides = [[value for at, value in enumerate(column) if (at in slow) == is_slow] for is_slow in (1, 0)]
        return statistics.median(sides[0]) - statistics.median(sides[1])


def slowdown_of(course: Anatomy) -> Slowdown | None:
    """None where the steps' times change by no more than chance may do, at equal work."""
    times = at_equal_work(course)
    numbers = [step.iteration for step in course.steps]
    found = shifts_of(times, numbers, SMALLEST.value)
    if not found:
        return _gradual(course, times)
    edges = [0, *(change.place for change in found), len(times)]
    levels = [statistics.median(times[first:end]) for first, end in pairwise(edges)]
    usual = min(levels)
    parts: list[tuple[int, int, float]] = []
    for is_slow, group in groupby(
        zip(edges, edges[1:], levels, strict=False), lambda part: part[2] > usual * (1 + SMALLEST.value)
    ):
        together = list(group)
        if is_slow and together[0][0] and _lasts(course, together[0][0], together[-1][1]):
            parts += together
    if not parts:
        return _gradual(course, times)
    excess = sum((level - usual) * (end - first) for first, end, level in parts)
    return Slowdown(
        course,
        found,
        max(found, key=lambda change: abs(change.after - change.before)),
        [at for first, end, _ in parts for at in range(first, end)],
        usual,
        max(level for *_, level in parts),
        excess / sum(times),
        _is_line(times, edges, levels),
    )


def _lasts(course: Anatomy, first: int, end: int) -> bool:
    """Whether steps are slow for longer than a burst, and for an eighth of the run if they are not to its
    end.
    """
    count = len(course.steps)
    slow = course.steps[end - 1].iteration - course.steps[first].iteration + 1
    if end < count:
        return end - first >= count / 8 and slow >= BURST.value
    return slow >= min(BURST.value, (course.steps[-1].iteration - course.steps[0].iteration) / 4)


def _gradual(course: Anatomy, times: Sequence[float]) -> Slowdown | None:
    """Steps that take longer and longer, by a line through sixteen medians; None for chance."""
    count = len(times)
    if count < 4 * LINE_PARTS:
        return None
    cuts = [part * count // LINE_PARTS for part in range(LINE_PARTS + 1)]
    parts = [statistics.median(times[one:end]) for one, end in pairwise(cuts)]
    first, last = ends_of_line(parts)
    grown = last - first
    if rise_of(parts) < RISE.value or grown <= SMALLEST.value * first:
        return None
    slope = grown / (LINE_PARTS - 1)
    off = 2 * statistics.median(abs(part - first - slope * at) for at, part in enumerate(parts))
    begun, ended = course.steps[0].iteration, course.steps[-1].iteration
    change = Shift(begun, first, last, 1, begun, ended, grown - off, grown + off)
    begin = max(0.0, first - slope / 2)  # of its first step
    excess = max(0.0, statistics.fmean(parts) - begin) * count / sum(times)
    return Slowdown(course, [change], change, range(count // 2, count), first, last, excess, True)


def at_equal_work(course: Anatomy) -> list[float]:
    """Times of the steps; where these differ in FLOPs or tokens, of as much work as the median one has."""
    work = [step.tokens if step.model_flops is None else step.model_flops for step in course.steps]
    times = [float(step.iteration_ns) for step in course.steps]
    if not work or min(work) <= 0 or min(work) == max(work):
        return times
    usual = statistics.median(work)
    return [time * usual / own for time, own in zip(times, work, strict=True)]


def _is_line(times: Sequence[float], edges: Sequence[int], levels: Sequence[float]) -> bool:
    """Whether a line is as near to the times as rising levels are."""
    if len(levels) < 3 or list(levels) != sorted(levels):
        return False
    line = sum(map(abs, beyond_line(times)))
    stairs = sum(
        abs(time - level)
        for (one, end), level in zip(pairwise(edges), levels, strict=True)
        for time in times[one:end]
    )
    return line <= 1.1 * stairs


@rule(
    needs_speed=True,
    explains={"jitter", "long_phase", "data_stall", "exposed_comm"},
    limits={"slowdown": SMALLEST, "slowdown_chance": CHANCE, "slowdown_rise": RISE, "slowdown_burst": BURST},
    causes=["something that began then: look at the log and at the hosts' other work around that iteration"],
    changes=[profile("profile steps before and after: what takes longer?")],
)
def slowdown(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Steps that take longer than others of the same run, for a long stretch of it and at equal work."""
    found = slowdown_of(case.signals.throughout(case.report.settled.first_iteration or 0))
    if found is None or not _is_known(found) or _comes_and_goes(found):
        return None
    if not _is_unexplained(case, found.excess, case.explained_by):
        return None
    grown = found.slow_ns - found.usual_ns
    phase, where = _place(found)
    beside = _beside(case, found, grown)
    title = f"{_who(phase)} {_when(case, found)}: {_how_much(found)} a step{where}{beside.host}"
    least, most = found.limits
    sureness = least / max(most, 1e-9)
    finding = slows(
        this, case, title, found.excess, [this.broke("longer, of a step, at least", least, "slowdown")]
    )
    first, last = found.span
    pattern = "growing" if found.is_gradual else "lasting"
    kept = ["something that is kept and gone through again in every step: a list, a cache, a log"]
    causes = [*beside.causes, *causes_in(phase, kept if found.is_gradual else this.causes)]
    return replace(
        finding,
        least_s=(finding.cost_s or 0.0) * min(1.0, sureness),
        least_gain=(finding.gain or 0.0) * min(1.0, sureness),
        first_iteration=first,
        iteration=last,
        phase=phase,
        pattern=pattern,
        causes=causes,
        changes=changes_in(phase, this.changes),
    )


def _is_known(found: Slowdown) -> bool:
    """Whether the change is above the limit for certain, and known to a factor of four."""
    least, most = found.limits
    return least >= SMALLEST.value and least >= most / 4


def _comes_and_goes(found: Slowdown) -> bool:
    """Whether the fastest tenth of the slow steps is about as fast as that of the others: bursts do so."""
    if found.is_gradual:
        return False
    slow = set(found.slow)
    sides: tuple[list[float], list[float]] = ([], [])
    for at, time in enumerate(at_equal_work(found.course)):
        sides[at in slow].append(time)
    usual, late = (sorted(side)[len(side) // 10] for side in sides)
    return late - usual < (found.slow_ns - found.usual_ns) / 4


def unsure_of(case: TrainingCase, findings: Sequence[Finding]) -> list[str]:
    """What of the run's course was left without a judgement: a change that is there, and why it is none of
    the findings.
    """
    if not case.can_judge_speed or any(one.name in ("slowdown", "growing_phase") for one in findings):
        return []
    course = case.signals.throughout()
    times = at_equal_work(course)
    found = shifts_of(times, [step.iteration for step in course.steps], SMALLEST.value)
    if not found:
        return []
    edges = [0, *(one.place for one in found), len(times)]
    change = max(found, key=lambda one: abs(one.after - one.before))
    at = found.index(change)
    is_rise = change.after > change.before
    slow = (edges[at + 1], edges[at + 2]) if is_rise else (edges[at], edges[at + 1])
    lost = abs(change.after - change.before) * (slow[1] - slow[0]) / sum(times)
    if not _lasts(course, *slow) or not _is_unexplained(case, lost, findings):
        return []
    before, after = (number(time / NS_PER_MS, 1) for time in (change.before, change.after))
    size = f"{'+' if is_rise else '-'}{_rounded(abs(change.after / change.before - 1))} %"
    if not is_rise:
        why = "slower at first, and no cause can be named"
    elif (known := slowdown_of(course)) is not None and _comes_and_goes(known):
        why = "in bursts, not in every step"
    else:
        why = "by how much is not known well enough"
    return [
        f"the steps' course: to iteration {change.last_before} a step takes {before} ms, "
        f"then {after} ({size}): {why}"
    ]


def _is_unexplained(case: TrainingCase, excess: float, findings: Sequence[Finding]) -> bool:
    """Whether nothing that is named from some iteration on, a rank, clock, allocator, costs as much."""
    named_s = sum(
        finding.cost_s or 0.0
        for finding in findings
        if finding.first_iteration is not None and finding.pattern != "constant"
    )
    return named_s < MOST_OF_IT * excess * case.rated_s


def _place(found: Slowdown) -> tuple[str | None, str]:
    """The phase that takes nearly all of it, and the end of a title: which phases take how much of it."""
    columns = found.course.phases
    if not columns:
        return None, ""
    longer = {name: found.longer(column) for name, column in columns.items()}
    whole = max(1.0, found.longer([step.iteration_ns for step in found.course.steps]))
    most = max(longer, key=lambda name: longer[name])
    if longer[most] >= MOST_OF_IT * whole:
        return most, ""
    of_step = whole / max(1, found.course.iteration_ns)
    alike = [name for name in longer if longer[name] >= _ALL_PHASES * of_step * found.course.usual_ns(name)]
    if sum(map(found.course.usual_ns, alike)) >= 0.95 * found.course.iteration_ns:
        return None, ", in all phases alike"
    parts = sorted(((took / whole, name) for name, took in longer.items() if took > whole / 10), reverse=True)
    listed = ", ".join(f"{named(name)} {round(part * 100)} %" for part, name in parts)
    return None, f" ({listed} of it)" if listed else ""


def _who(phase: str | None) -> str:
    return "A step takes" if phase is None else f"{named(phase).capitalize()} takes"


def _when(case: TrainingCase, found: Slowdown) -> str:
    first, last = found.span
    change = next((one for one in found.changes if one.after > one.before), None)
    about = "" if change is None or change.latest - change.earliest <= 2 else "about "
    if found.is_gradual:
        return f"longer and longer from {about}iteration {first} on{_after(case, first)}"
    end = found.course.steps[-1].iteration
    until = "on" if last == end else f"to {last}"
    rises = sum(one.after > one.before for one in found.changes)
    steps = f", in {rises} steps" if rises > 1 else ""
    return f"longer from {about}iteration {first} {until}{_after(case, first)}{steps}"


def _after(case: TrainingCase, iteration: int) -> str:
    """Such as ` (5 h 07 min after the start)`."""
    stretches = case.signals.course.since(0)
    before = [one for one in stretches if one.iteration < iteration]
    if not before:
        return ""
    return f" ({duration((before[-1].end_wall_ns - stretches[0].end_wall_ns) / NS_PER_S)} after the start)"


def _how_much(found: Slowdown) -> str:
    """Both times in milliseconds, and the share as an interval."""
    least, most = map(_rounded, found.limits)
    usual, slow = (number(time / NS_PER_MS, 1) for time in (found.usual_ns, found.slow_ns))
    share = f"{least} %" if least == most else f"{least} to {most} %"
    return f"by {share}, from {usual} to {slow} ms"


def _rounded(share: float) -> str:
    """In percent, to two figures."""
    return f"{100 * share:.0f}" if share >= 0.1 else f"{100 * share:.2g}"


@dataclass(frozen=True)
class _Beside:
    """What changed at the same time: the end of a title where the host did, and causes."""

    host: str
    causes: list[str]


def _beside(case: TrainingCase, found: Slowdown, grown_ns: float) -> _Beside:
    stretches, (first, last) = case.signals.course.since(found.course.steps[0].iteration), found.span
    slow = [one for one in stretches if first <= one.iteration <= last]
    others = [one for one in stretches if not first <= one.iteration <= last]
    if not slow or not others:
        return _Beside("", [])
    host = _short_of(slow, others, MOST_OF_IT * grown_ns / found.slow_ns)
    causes = [*host.causes, *_slower_clock(slow, others)]
    for place, what in enumerate(("an evaluation", "a checkpoint")):
        if any(one.pauses[place] for one in slow[:1]):
            causes.append(f"{what} comes just then")
    return _Beside(host.host, causes)


def _short_of(slow: Sequence[Stretch], others: Sequence[Stretch], least_share: float) -> _Beside:
    """What the host waits for more of the time than before, by at least that share."""
    for place, what in enumerate(_WAITS):
        before, after = _waiting(others, place), _waiting(slow, place)
        if after - before >= least_share:
            cause = f"the host waits for {what} {percent(after)} of the time then, {percent(before)} before"
            return _Beside(f", while the host is short of {what}", [cause])
    return _Beside("", [])


def _slower_clock(slow: Sequence[Stretch], others: Sequence[Stretch]) -> list[str]:
    clocks = [[one.clock_mhz for one in side if one.clock_mhz is not None] for side in (others, slow)]
    if all(clocks) and statistics.median(clocks[1]) < (1 - SMALLEST.value) * statistics.median(clocks[0]):
        fall = " to ".join(f"{statistics.median(one):g}" for one in clocks)
        return [f"the device's clock falls: from {fall} MHz"]
    return []


def _waiting(stretches: Sequence[Stretch], place: int) -> float:
    """The share of the time between readings that the host waits."""
    read_ns = sum(one.host_ns for one in stretches)
    return sum(one.waits_ns[place] for one in stretches) / read_ns if read_ns else 0.0
