"""A run that becomes slower within itself: at once, more and more, or for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flagscale_perf.analysis.rules import Finding, rule
from flagscale_perf.spine.averages import median
from flagscale_perf.spine.chance import CHANCE, RISE
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.shift import FOR_A_LINE, Shift, shifts_of
from flagscale_perf.spine.units import duration, number, percent
from flagscale_perf.training.analysis.findings.anatomy import Anatomy
from flagscale_perf.training.analysis.findings.case import TrainingCase, TrainingRule, slows
from flagscale_perf.training.analysis.findings.causes import causes_in, changes_in, named, profile
from flagscale_perf.training.analysis.findings.slower import (
    BURST,
    WORTH_A_LOOK,
    Slowdown,
    at_equal_work,
    lasts,
    least_found,
    slowdown_of,
)
from flagscale_perf.training.stretch import PAUSES, WAITS, Stretch

MOST_OF_IT = 0.8  # of a change; what is so much of it is named as its place or cause
_ALL_PHASES = 0.5  # a phase belongs to "all" if it grew by so much of what the whole grew by, in proportion
_FOR = ("CPU", "CPU", "memory", "its disks")  # what the host waits for in each of `WAITS`


@rule(
    needs_speed=True,
    explains={"jitter", "long_phase", "data_stall", "exposed_comm"},
    limits={
        "slowdown": WORTH_A_LOOK,
        "slowdown_chance": CHANCE,
        "slowdown_rise": RISE,
        "slowdown_burst": BURST,
    },
    causes=["something that began then: look at the log and at the hosts' other work around that iteration"],
    changes=[profile("profile steps before and after: what takes longer?")],
)
def slowdown(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Steps that take longer than others of the same run, for a long stretch of it and at equal work."""
    found = slowdown_of(case.signals.throughout(case.report.settled.first_iteration or 0))
    if found is None or not found.is_known or found.comes_and_goes:
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
    causes = [*beside.causes, *(kept if found.is_gradual else this.causes), *causes_in(phase, [])]
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


def unsure_of(case: TrainingCase, findings: Sequence[Finding]) -> tuple[list[str], list[str]]:
    """What of the run's course was left without a judgement: a change that is there, and why it is none of
    the findings; where there is none, from which size on one would have been found, if above the limit.
    """
    course = case.signals.throughout()
    known = any(one.name in ("slowdown", "growing_phase") for one in findings)
    if known or not case.can_judge_speed or not course.steps:
        return [], []
    times = at_equal_work(course)
    changes = shifts_of(times, [step.iteration for step in course.steps], WORTH_A_LOOK.value)
    if told := _change_of(case, course, changes, findings):
        return [f"the steps' course: {told}"], []
    return [], [f"the steps' course: {told}"] if (told := _within_noise(times, changes)) else []


def _change_of(
    case: TrainingCase, course: Anatomy, changes: Sequence[Shift], findings: Sequence[Finding]
) -> str:
    """The greatest of the changes that last and that none of the findings is; or that of a line."""
    known, unsure = slowdown_of(course), "by how much is not known well enough"
    if not changes:
        if known is None or not _is_unexplained(case, known.excess, findings):
            return ""
        return f"{_sized(known.clearest)}, little by little: {unsure}"
    edges, times = [0, *(one.place for one in changes), len(course.steps)], at_equal_work(course)
    for change in sorted(changes, key=lambda one: abs(one.after - one.before), reverse=True):
        is_rise = change.after > change.before
        at = changes.index(change) + is_rise
        begin, end = edges[at], edges[at + 1]  # its slower side
        lost = abs(change.after - change.before) * (end - begin) / sum(times)
        if not lasts(course, begin, end) or not _is_unexplained(case, lost, findings):
            continue
        why = unsure if known is None or not known.comes_and_goes else "in bursts, not in every step"
        why = why if is_rise else "slower at first, and no cause can be named"
        return f"{_sized(change)} after iteration {change.last_before}: {why}"
    return ""


def _sized(change: Shift) -> str:
    """Both times and the share."""
    before, after = (number(time / NS_PER_MS, 1) for time in (change.before, change.after))
    size = change.after / change.before - 1
    sign = "+" if size > 0 else "-"
    return f"a step went from {before} to {after} ms ({sign}{_rounded(abs(size))} %)"


def _within_noise(times: Sequence[float], changes: Sequence[Shift]) -> str:
    """Nothing where whatever is worth a look would have been found."""
    least = least_found(times, changes)
    if least < 1.3 * WORTH_A_LOOK.value and len(times) >= FOR_A_LINE:
        return ""
    size = "half of a step" if least > 1 else f"{_rounded(least)} %"
    any_size = "" if len(times) >= FOR_A_LINE else "of any size "
    return f"a slowdown of less than {size} halfway, or {any_size}little by little: it would look like chance"


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
    for pause_ns, what in zip(PAUSES, ("an evaluation", "a checkpoint"), strict=True):
        if getattr(slow[0], pause_ns):
            causes.append(f"{what} comes just then")
    return _Beside(host.host, causes)


def _short_of(slow: Sequence[Stretch], others: Sequence[Stretch], least_share: float) -> _Beside:
    """What the host waits for more of the time than before, by at least that share."""
    for wait_ns, what in zip(WAITS, _FOR, strict=True):
        before, after = _waiting(others, wait_ns), _waiting(slow, wait_ns)
        if after - before >= least_share:
            cause = f"the host waits for {what} {percent(after)} of the time then, {percent(before)} before"
            return _Beside(f", while the host is short of {what}", [cause])
    return _Beside("", [])


def _slower_clock(slow: Sequence[Stretch], others: Sequence[Stretch]) -> list[str]:
    clocks = [[one.sm_clock_mhz for one in side if one.sm_clock_mhz is not None] for side in (others, slow)]
    if all(clocks) and median(clocks[1]) < (1 - WORTH_A_LOOK.value) * median(clocks[0]):
        fall = " to ".join(f"{median(one):g}" for one in clocks)
        return [f"the device's clock falls: from {fall} MHz"]
    return []


def _waiting(stretches: Sequence[Stretch], wait_ns: str) -> float:
    """The share of the time between readings that the host waits."""
    whole = Stretch.of(stretches)
    return whole.waiting(getattr(whole, wait_ns))
