"""Why there are no phases, counters or memory: by what the run itself has said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.analysis.tables import Happening, Monitor
from flagscale_perf.training.analysis.why_not import no_counters, no_memory, no_phases
from tests.reports import overview, small


def said(*events: tuple[str, str], **seen: Any) -> TrainingReport:
    happened = [Happening(name, 1, "2024-01-29 10:30:20", text) for name, text in events]
    return replace(small(), overview=overview(**seen), monitor=Monitor(0.0, 0, 0, happened, {}))


def test_phases() -> None:
    on = {"config": {"perf_breakdown": True}}
    assert no_phases(said()) == "no phases; switch on --perf-breakdown"
    missing = said(missing=["phases (the host has no timers that mark them)"], **on)
    assert no_phases(missing) == "no phases: the host has no timers that mark them"
    shed = "phases switched off: the monitor takes 300 us a step"
    assert no_phases(said(("shed", shed), **on)) == f"no phases: {shed}"
    assert no_phases(said(**on)) == (
        "no phases: --perf-breakdown is on, but no step after the first has any yet"
    )


def test_counters() -> None:
    assert no_counters(said(device="CPU (rehearsal)")) == "a CPU has none that are read"
    why = "NVML: the package nvidia-ml-py is not installed; pip install nvidia-ml-py"
    assert no_counters(said(("hardware", f"no hardware counters: {why}"))) == why
    assert no_counters(said()) == (
        "not read from NVIDIA's driver; pip install nvidia-ml-py on the training machine"
    )


def test_memory() -> None:
    assert no_memory(said(config={"perf_memory_tracking": False})) == "--perf-memory-tracking is off"
    assert no_memory(said(device="CPU (rehearsal)")) == "a CPU has no allocator to read"
    assert no_memory(said()) == "the allocator was not read"
