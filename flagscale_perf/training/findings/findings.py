"""What holds a training back, in the order of what it costs."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis import rules
from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.findings import data, device, memory, pauses, pipeline, ranks, steps
from flagscale_perf.training.findings.case import TrainingCase

RULES = rules.rules_in(memory, pauses, device, data, ranks, pipeline, steps)


def find(case: TrainingCase) -> TrainingReport:
    """The case's report with its findings."""
    return replace(case.report, findings=rules.find(RULES, case), unjudged=_unjudged(case))


def _unjudged(case: TrainingCase) -> list[str]:
    """What no rule could look at, so that silence is not taken for health."""
    report = case.report
    doubts = {
        f"the speed of the steps: {case.steps} are too few": not case.can_judge_speed,
        "data loading, communication and the pipeline: no phases; switch on --perf-breakdown": not report.phases.steps,
        "other ranks than the first: the file has nothing of them": report.ranks is None
        and (report.overview.world_size or 1) > 1,
        "MFU: not known": report.figures.mfu is None,
        "memory: not read": report.memory.peak_gb is None,
        "clocks: not read": report.hardware.throttle is None,
    }
    return [doubt for doubt, is_so in doubts.items() if is_so]
