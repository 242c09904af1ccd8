"""What holds a training back, in the order of what it costs."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis import rules
from flagscale_perf.training.analysis.findings import data, device, memory, pauses, pipeline, ranks, steps
from flagscale_perf.training.analysis.findings.case import TrainingCase
from flagscale_perf.training.analysis.report import TrainingReport

_PHASES = "data loading, communication and the pipeline"

RULES = rules.rules_in(memory, pauses, device, data, ranks, pipeline, steps)


def find(case: TrainingCase) -> TrainingReport:
    """The case's report with its findings."""
    return replace(case.report, findings=rules.find(RULES, case), unjudged=_unjudged(case))


def _unjudged(case: TrainingCase) -> list[str]:
    """What no rule could look at, so that silence is not taken for health."""
    report = case.report
    is_alone = (report.overview.world_size or 1) == 1
    reasons = [
        (not case.can_judge_speed, f"the speed of the steps: {case.steps} are too few"),
        (not report.phases.steps, f"{_PHASES}: no phases; switch on --perf-breakdown"),
        (report.ranks is None and not is_alone, "other ranks than the first: the file has nothing of them"),
        (report.figures.mfu is None, "MFU: not known"),
        (report.memory.peak_gb is None, "memory: not read"),
        (report.hardware.throttle is None, "clocks: not read"),
    ]
    return [reason for applies, reason in reasons if applies]
