"""Why a report has no phases, counters or memory: what this run has said about it, and what would help."""

from __future__ import annotations

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.training.analysis.report import TrainingReport

NO_COUNTERS = "no hardware counters: "  # begins the remark of the writer that reads them


def no_phases(found: TrainingReport) -> str:
    """The reason, in one phrase."""
    if reason := _missing(found, "phases"):
        return f"no phases: {reason}"
    if not _options(found).perf_breakdown:
        return "no phases; switch on --perf-breakdown"
    if shed := next((one.text for one in found.monitor.events if one.name == "shed"), ""):
        return f"no phases: {shed}"
    return "no phases: --perf-breakdown is on, but no step after the first has any yet"


def no_counters(found: TrainingReport) -> str:
    """The reason, in one phrase."""
    if is_cpu(found):
        return "a CPU has none that are read"
    told = [one.text for one in found.monitor.events if one.text.startswith(NO_COUNTERS)]
    if told:
        return told[0].removeprefix(NO_COUNTERS)
    return _missing(found, "hardware counters") or (
        "not read from NVIDIA's driver; pip install nvidia-ml-py on the training machine"
    )


def no_memory(found: TrainingReport) -> str:
    """The reason, in one phrase."""
    if not _options(found).perf_memory_tracking:
        return "--perf-memory-tracking is off"
    return "a CPU has no allocator to read" if is_cpu(found) else "the allocator was not read"


def _options(found: TrainingReport) -> PerfConfig:
    return PerfConfig.of(found.overview.config)


def is_cpu(found: TrainingReport) -> bool:
    """Whether rank 0's device is a CPU."""
    return (found.overview.device or "").startswith("CPU")


def _missing(found: TrainingReport, what: str) -> str:
    """The reason in `phases (the reason)` among what was not available."""
    start = f"{what} ("
    phrase = next((each for each in found.overview.missing if each.startswith(start)), "")
    return phrase.removeprefix(start).removesuffix(")")
