"""What holds a run back, in the order of what it costs. Each rule looks for one thing and says nothing where
it is not wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flagscale_perf.analysis.report import Finding
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.units import number
from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.analysis.tables import Phases
from flagscale_perf.training.findings.case import (
    Case,
    broke,
    exceeds,
    interrupts,
    limit,
    percent,
    slows,
    warns,
)
from flagscale_perf.training.findings.rank_findings import (
    data_stall,
    slow_stage,
    straggler,
    waits_explained_s,
)
from flagscale_perf.training.findings.signals import PER_MILLE

Rule = Callable[[Case], Finding | None]


def find(case: Case) -> TrainingReport:
    """The case's report with its findings."""
    rules = [*ALWAYS, *(WITH_STEPS if case.steps >= limit("min_steps") else ())]
    found = [finding for rule in rules if (finding := rule(case)) is not None]
    if case.steps >= limit("min_steps"):
        rest = jitter(case, sum(finding.cost_s or 0.0 for finding in found if finding.name in _UNEVEN))
        found += [] if rest is None else [rest]
    ordered = sorted(
        found, key=lambda finding: -1.0 if finding.cost_s is None else finding.cost_s, reverse=True
    )
    return replace(case.report, findings=ordered, unjudged=_unjudged(case))


def _unjudged(case: Case) -> list[str]:
    """What no rule could look at, so that silence is not taken for health."""
    report = case.report
    doubts = {
        f"the speed of the steps: {case.steps} are too few": case.steps < limit("min_steps"),
        "data loading, communication and the pipeline: no phases; switch on --perf-breakdown": not report.phases.steps,
        "other ranks than the first: the file has nothing of them": report.ranks is None
        and (report.overview.world_size or 1) > 1,
        "MFU: not known": report.figures.mfu is None,
        "memory: not read": report.memory.peak_gb is None,
        "clocks: not read": report.hardware.throttle is None,
    }
    return [doubt for doubt, is_so in doubts.items() if is_so]


def pipeline_bubble(case: Case) -> Finding | None:
    """Idle time that the pipeline's schedule makes inevitable."""
    share = case.report.phases.bubble_share
    if share is None or not exceeds(share, "pipeline_bubble"):
        return None
    stages = case.report.overview.parallel.get("PP")
    title = f"The pipeline's schedule leaves {percent(share)} of the steps' time idle with {stages} stages"
    return slows(
        case,
        "pipeline_bubble",
        title,
        share,
        [broke("bubble, of the iterations' time", share, "pipeline_bubble")],
    )


def exposed_comm(case: Case) -> Finding | None:
    """Gradients and parameters under way while nothing is computed."""
    exposed = _phase_share(case.report.phases, "exposed_grad_comm") + _phase_share(
        case.report.phases, "exposed_param_comm"
    )
    share = exposed - (case.share_of_steps(waits_explained_s(case)) or 0.0)
    if not exceeds(share, "exposed_comm"):
        return None
    title = f"Exchanging gradients and parameters that no computing hides takes {percent(share)} of the steps' time"
    evidence = [broke("exposed communication, of the iterations' time", share, "exposed_comm")]
    return slows(case, "exposed_comm", title, share, evidence)


def throttling(case: Case) -> Finding | None:
    """A cap that held rank 0's clock below what it has been."""
    signals = case.signals
    trouble, lowest = signals.throttled, signals.lowest_clock
    excess_ns = trouble.excess_ns(signals.usual_ns())
    if not trouble.steps or lowest is None:
        return None
    caps = " and ".join(sorted(signals.caps))
    evidence = [broke("lowest clock, of the run's highest", lowest, "throttling_clock")]
    if excess_ns is None:
        title = f"The clock of rank 0's device is capped by {caps} in every interval"
        found = warns("throttling", title, evidence)
    else:
        share = case.share_of_steps(excess_ns / NS_PER_S)
        if share is None or not exceeds(share, "throttling"):
            return None
        title = f"The clock of rank 0's device, capped by {caps}, slows {trouble.steps} steps down: {percent(share)} of all steps' time"
        evidence.append(broke("time above the median interval without a cap", share, "throttling"))
        found = slows(case, "throttling", title, share, evidence)
    return replace(found, first_iteration=trouble.first_iteration, iteration=trouble.iteration, ranks=[0])


def memory_limit(case: Case) -> Finding | None:
    """The peak near what the device has, or growing towards it before the end of training."""
    report = case.report
    device_gb, steps_left = report.memory.device_gb, report.memory.out_of_memory_in_steps
    peaks = list(enumerate(report.ranks.peak_gb)) if report.ranks else []
    entry, highest_gb = max(
        ((entry, gb) for entry, gb in peaks if gb is not None), key=lambda peak: peak[1], default=(0, 0.0)
    )
    own_gb = report.memory.peak_gb or 0.0
    rank = report.ranks.entries[entry].first_rank if report.ranks and highest_gb > own_gb else 0
    peak_gb = max(highest_gb, own_gb)
    if not device_gb:
        return None
    share, last, train_iters = (
        peak_gb / device_gb,
        report.overview.last_iteration or 0,
        report.overview.train_iters,
    )
    ends_early = steps_left is not None and train_iters is not None and last + steps_left < train_iters
    if share <= limit("memory_limit") and not ends_early:
        return None
    title = f"Memory of rank {rank}'s device is {percent(share)} full at peak"
    if ends_early:
        title += f" and grows: out of memory in {steps_left} steps at the latest if it goes on like this"
    return replace(
        warns("memory_limit", title, [broke("peak, of the device's memory", share, "memory_limit")]),
        ranks=[rank],
    )


def allocator_retries(case: Case) -> Finding | None:
    """The allocator had to free its cache in the middle of training."""
    signals, trouble = case.signals, case.signals.retried
    if not exceeds(signals.retries, "allocator_retries"):
        return None
    title = f"The memory allocator of rank 0 ran out of room {signals.retries} times and freed its cache"
    evidence = [broke("retries after the first interval", signals.retries, "allocator_retries")]
    excess_ns = trouble.excess_ns(signals.usual_ns())
    share = case.share_of_steps(None if excess_ns is None else excess_ns / NS_PER_S)
    found = (
        slows(case, "allocator_retries", title, share, evidence)
        if share
        else warns("allocator_retries", title, evidence)
    )
    return replace(found, first_iteration=trouble.first_iteration, iteration=trouble.iteration, ranks=[0])


def checkpoint(case: Case) -> Finding | None:
    """Training that waits for checkpoints."""
    return _pause(case, "checkpoint", "Training waits for checkpoints for")


def evaluation(case: Case) -> Finding | None:
    """Evaluation between the steps."""
    return _pause(case, "evaluation", "Evaluation takes")


def startup(case: Case) -> Finding | None:
    """The way to the first step."""
    dur_s, _ = case.part("startup")
    return _pause(
        case,
        "startup",
        f"{number(dur_s, 0)} s pass before the first step has begun to run at its usual speed:",
    )


def idle(case: Case) -> Finding | None:
    """Time in no iteration and no known pause."""
    return _pause(case, "idle", "Nothing that is known happened for")


def lost(case: Case) -> Finding | None:
    """Iterations that did not train."""
    return _pause(case, "lost", f"{case.report.overview.skipped_iterations} iterations trained nothing:")


def gc_pauses(case: Case) -> Finding | None:
    """Single slow steps at even distances."""
    slow = case.signals.slow_steps
    low, middle, high = (slow.distances.quantile(share) for share in (0.25, 0.5, 0.75))
    share = case.share_of_steps(slow.excess_ns / NS_PER_S)
    if (
        slow.count < limit("gc_count")
        or low is None
        or middle is None
        or high is None
        or share is None
        or middle < 2
    ):
        return None
    spread = max(middle - low, high - middle) / middle
    if not exceeds(share, "gc_pauses") or spread > limit("gc_spread"):
        return None
    title = f"About every {middle} steps one is slow, as when Python collects garbage: {percent(share)} of the steps' time"
    evidence = [
        broke("time of the slow steps above the usual", share, "gc_pauses"),
        broke("how many there are", slow.count, "gc_count"),
    ]
    return slows(case, "gc_pauses", title, share, evidence)


def jitter(case: Case, explained_s: float) -> Finding | None:
    """Uneven steps, beyond what other findings explain."""
    slow = case.signals.slow_steps
    ratio = (slow.ratios.quantile(0.95) or 0) / PER_MILLE
    share = case.share_of_steps(max(0.0, slow.excess_ns / NS_PER_S - explained_s))
    if share is None or not exceeds(ratio, "jitter") or not exceeds(share, "jitter_cost"):
        return None
    title = f"Steps are uneven: {slow.count} of {case.steps} take {number(limit('slow_step'), 1)} times the usual or more, at no even distance"
    evidence = [
        broke("p95 of the steps against the median before each", ratio, "jitter"),
        broke("time above the usual", share, "jitter_cost"),
    ]
    return slows(case, "jitter", title, share, evidence)


def small_micro_batch(case: Case) -> Finding | None:
    """Kernels too small for the device, and memory for larger ones."""
    overview, mfu = case.report.overview, case.report.figures.mfu
    if (
        overview.micro_batch_size is None
        or overview.seq_length is None
        or mfu is None
        or not case.has_spare_memory()
    ):
        return None
    tokens = overview.micro_batch_size * overview.seq_length // max(1, overview.parallel.get("CP", 1))
    phases = case.report.phases
    computing = _phase_share(phases, "forward") + _phase_share(phases, "backward")
    mfu_computing = mfu / computing if computing > 0 else mfu
    if tokens > limit("micro_batch_tokens") or mfu_computing >= limit("micro_batch_mfu"):
        return None
    title = f"A micro-batch has only {tokens} tokens for a device, which reaches {percent(mfu_computing)} of its peak while it computes"
    evidence = [
        broke("tokens of a micro-batch on one device, at most", tokens, "micro_batch_tokens"),
        broke("MFU while computing, below", mfu_computing, "micro_batch_mfu"),
    ]
    return warns("small_micro_batch", title, evidence)


def full_recompute(case: Case) -> Finding | None:
    """Activations made again though there is room to keep them."""
    figures, phases = case.report.figures, case.report.phases
    if not figures.model_flops or not figures.hardware_flops or not case.has_spare_memory():
        return None
    ratio = figures.hardware_flops / figures.model_flops
    if not exceeds(ratio, "full_recompute"):
        return None
    computing = _phase_share(phases, "forward") + _phase_share(phases, "backward") if phases.steps else 1.0
    share = (1 - 1 / ratio) * computing
    full = case.report.memory.peak_share or 0.0
    title = f"Recomputing activations takes {percent(share)} of the steps' time though memory is only {percent(full)} full"
    evidence = [
        broke("FLOPs with recomputation against the model's", ratio, "full_recompute"),
        broke("peak, of the device's memory, below", full, "spare_memory"),
    ]
    return slows(case, "full_recompute", title, share, evidence)


def mfu_suspect(case: Case) -> Finding | None:
    """More than a device is likely to do."""
    figures = case.report.figures
    if figures.suspect_intervals:
        highest = max((point.mfu or 0.0 for point in case.report.trend.points), default=0.0)
        title = f"Intervals above the peak: {figures.suspect_intervals}. The peak, the data type or the count of FLOPs is wrong"
        return warns("mfu_suspect", title, [broke("highest MFU of an interval", highest, "mfu_suspect")])
    if figures.mfu is None or not exceeds(figures.mfu, "mfu_suspect"):
        return None
    title = f"MFU of {percent(figures.mfu)} is more than a device is likely to do"
    return warns("mfu_suspect", title, [broke("MFU", figures.mfu, "mfu_suspect")])


def _pause(case: Case, name: str, title: str) -> Finding | None:
    dur_s, share = case.part(name)
    is_short = f"{name}_s" in _ALSO_SECONDS and not exceeds(dur_s, f"{name}_s")
    if is_short or not exceeds(share, name):
        return None
    return interrupts(
        case,
        name,
        f"{title} {percent(share)} of the session",
        [broke(f"{name}, of the wall time", share, name)],
    )


def _phase_share(phases: Phases, name: str) -> float:
    return next((row.share or 0.0 for row in phases.rows if row.name == name), 0.0)


_ALSO_SECONDS = {"startup_s", "idle_s"}
_UNEVEN = {
    "throttling",
    "allocator_retries",
    "gc_pauses",
    "straggler",
    "data_stall",
}  # what makes single steps slow
ALWAYS: tuple[Rule, ...] = (memory_limit, checkpoint, evaluation, startup, idle, lost, mfu_suspect)
WITH_STEPS: tuple[Rule, ...] = (
    *(data_stall, straggler, slow_stage, pipeline_bubble, exposed_comm, throttling),
    *(allocator_retries, gc_pauses, small_micro_batch, full_recompute),
)
