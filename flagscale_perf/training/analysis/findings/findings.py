"""Finds what holds a training back, the costliest first; says what could not be judged, and why."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis import rules
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.spine.units import duration, percent
from flagscale_perf.training.analysis.findings import (
    data,
    device,
    host,
    memory,
    pauses,
    phases,
    pipeline,
    ranks,
    slowdown,
    steps,
)
from flagscale_perf.training.analysis.findings.case import TrainingCase
from flagscale_perf.training.analysis.report import TrainingReport

FOOTNOTE_SHARE, FOOTNOTE_S = 0.02, 1.0  # below one of them, what names no cause is no finding
RULES = rules.rules_in(memory, pauses, device, host, data, ranks, pipeline, slowdown, phases, steps)
_NO_COUNTERS = "no hardware counters: "  # begins the remark of the writer that reads them
_NAMING_NO_CAUSE = frozenset(each.name for each in RULES if not each.names_cause)


def find(case: TrainingCase, with_unjudged: bool = True) -> TrainingReport:
    """The case's report with its findings. One that names no cause and costs next to nothing calls for no
    action: it becomes a line of what could not be judged. `with_unjudged`: whether there are such lines.
    """
    every = rules.find(RULES, case)
    small = [finding for finding in every if _is_footnote(finding)]
    named = [finding for finding in every if finding not in small]
    few_steps = None if case.can_judge_speed else case.steps
    if not with_unjudged:  # how great a change may have stayed hidden takes as long as all findings
        return replace(case.report, findings=named, few_steps=few_steps)
    unsure, hidden = slowdown.unsure_of(case, named)
    unjudged = [*map(_footnote, small), *unsure, *_unjudged(case), *hidden]
    return replace(case.report, findings=named, unjudged=unjudged, few_steps=few_steps)


def _is_footnote(finding: Finding) -> bool:
    costs = finding.cost_s is not None
    is_small = (finding.cost_s or 0.0) < FOOTNOTE_S or (finding.cost_share or 0.0) < FOOTNOTE_SHARE
    return costs and is_small and finding.name in _NAMING_NO_CAUSE


def _footnote(finding: Finding) -> str:
    took = f"{duration(finding.cost_s or 0.0)}, {percent(finding.cost_share or 0.0)} of the wall time"
    return f"{finding.title}: it took {took}, and no cause can be named"


def _unjudged(case: TrainingCase) -> list[str]:
    """What could not be judged, so that silence is not taken for health."""
    report = case.report
    uncompared = device.why_not_compared(report)
    is_alone = (report.overview.world_size or 1) == 1
    reasons = [
        (not case.can_judge_speed, f"the speed of the steps: {case.steps} are too few"),
        (
            not report.phases.steps,
            f"data loading, communication and the pipeline: {no_phases(report)}",
        ),
        (
            report.ranks is None and not report.ledgers and not is_alone,
            "other ranks than the first: the file has nothing of them",
        ),
        (
            bool(report.phases.steps and case.unknown_host_share()),
            f"data loading and communication below {percent(case.unknown_host_share())} of the steps' time:"
            " how long ranks waited for a CPU is not known",
        ),
        (report.figures.mfu is None, f"MFU: {_no_mfu(report)}"),
        (
            report.figures.mfu is not None and uncompared is not None,
            f"MFU by the tensor cores' counter: {uncompared}",
        ),
        (report.memory.peak_gb is None, f"memory: {_no_memory(report)}"),
        (report.hardware.throttle is None, f"clocks: {_no_counters(report)}"),
    ]
    return [*(reason for applies, reason in reasons if applies), *_shared_cores(case)]


def _shared_cores(case: TrainingCase) -> list[str]:
    cores, nodes = case.signals.host.cores, case.report.overview.nodes
    ranks = next((node.ranks for node in nodes if node.first_rank == 0), case.report.overview.world_size or 1)
    if not case.is_on_cpu or cores is None or ranks <= cores or ranks < 2:
        return []
    why = f"{ranks} ranks share {cores} cores, and one that sleeps or waits leaves its core to the others"
    return [f"what a rank would cost on cores of its own: {why}"]


def _no_mfu(report: TrainingReport) -> str:
    reason = next((each for each in report.overview.missing if each.startswith("TFLOPS, MFU")), None)
    if reason is None and report.overview.peak_tflops is None:
        reason = "the peak of a CPU is in no table" if _is_cpu(report) else report.overview.peak_source
    if reason is None and report.figures.suspect_intervals == report.figures.intervals > 0:
        reason = "every interval is above the peak"
    if reason is None and report.figures.model_flops is None:
        reason = "the FLOPs of some steps are not known"
    return reason or "not known"


def no_phases(found: TrainingReport) -> str:
    """Why a report has no phases, in one phrase."""
    if reason := _missing(found, "phases"):
        return f"no phases: {reason}"
    if not _options(found).perf_breakdown:
        return "no phases; switch on --perf-breakdown"
    if shed := next((one.text for one in found.monitor.events if one.name == "shed"), ""):
        return f"no phases: {shed}"
    return "no phases: --perf-breakdown is on, but no step after the first has any yet"


def _no_counters(found: TrainingReport) -> str:
    if _is_cpu(found):
        return "a CPU has none that are read"
    told = [one.text for one in found.monitor.events if one.text.startswith(_NO_COUNTERS)]
    if told:
        return told[0].removeprefix(_NO_COUNTERS)
    return _missing(found, "hardware counters") or (
        "not read from NVIDIA's driver; pip install nvidia-ml-py on the training machine"
    )


def _no_memory(found: TrainingReport) -> str:
    if not _options(found).perf_memory_tracking:
        return "--perf-memory-tracking is off"
    return "a CPU has no allocator to read" if _is_cpu(found) else "the allocator was not read"


def _options(found: TrainingReport) -> PerfConfig:
    return PerfConfig.of(found.overview.config)


def _is_cpu(found: TrainingReport) -> bool:
    return (found.overview.device or "").startswith("CPU")


def _missing(found: TrainingReport, what: str) -> str:
    """The reason in `phases (the reason)` among what was not available."""
    start = f"{what} ("
    phrase = next((each for each in found.overview.missing if each.startswith(start)), "")
    return phrase.removeprefix(start).removesuffix(")")
